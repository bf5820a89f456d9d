"""Builds the headers and libraries into a folder, once per version, Python and set of functions.

The folder is laid out like the toolkit: `include/{acl,aclnn,aclnnop}`, `lib64/` (which is `lib/`), `set_env.sh`,
`bin/setenv.bash` and the other names that folders have there (`packages.LINKS`);
beside them `lib/cmake/openaclnn/`, `lib/pkgconfig/` and `share/openaclnn/`. It lies below the user's cache
(`OPENACLNN_CACHE_DIR`, else `$XDG_CACHE_HOME/openaclnn`, else `~/.cache/openaclnn`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.resources
import io
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openaclnn.capi import glue, packages
from openaclnn.capi.headers import header_files
from openaclnn.capi.toolchain import BuildError, Toolchain, find_cffi, find_toolchain
from openaclnn.core.trust import cache_folder, make_trusted, warn_of, why_untrusted_tree
from openaclnn.core.version import __version__

__all__ = ["LIBRARIES", "BuildError", "Installation", "installation", "is_installation", "writable_folder"]  # fmt: skip

LIBRARIES = ("ascendcl", "acl_rt", "nnopbase", "opapi", "opapi_nn", "opapi_math", "aclnn_ops_infer", "aclnn_ops_train",
             "aclnn_math")  # fmt: skip
"""The libraries that programs link or open by name. Each of them exports every function."""

CORE = "openaclnn_core"
MARK = ".openaclnn"
"""A file by which a folder of ours is known."""
_MODULE = "_openaclnn_core"
_OWN_C = ("arrays.c", "start.c", "fork.c", "exit.c", "crossing.c")


@dataclass(frozen=True)
class Installation:
    """Where the C side lies."""

    root: Path

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    @property
    def cflags(self) -> list[str]:
        return [f"-I{self.include / folder}" for folder in packages.INCLUDED]

    @property
    def libs(self) -> list[str]:
        """Link arguments; with the run path in them no environment variable is needed."""
        names = [f"-l{name}" for name in packages.LINKED]
        return [f"-L{self.lib}", f"-Wl,-rpath,{self.lib}", *names]

    def library(self, name: str = LIBRARIES[0]) -> Path:
        """A library by its short name, for `ctypes.CDLL` and the like."""
        return self.lib / f"lib{name}.so"


def writable_folder() -> Path:
    """Where installations go: the cache, or a folder of the caller's below the system's temporary one where the cache cannot be written or trusted."""
    folder = cache_folder()
    if "OPENACLNN_CACHE_DIR" in os.environ and folder is not None:  # by name: no other will do
        return folder
    if folder is not None:
        with contextlib.suppress(OSError):
            why = make_trusted(folder)
            if why is not None:
                warn_of(why, f"{folder}, for the C libraries,")
            elif os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.gettempdir()) / f"openaclnn-{os.getuid()}"


def _find_packages() -> str:
    """Python code that lets the embedded interpreter find what the building one has found."""
    import numpy

    inside = [Path(__file__).parent, *(Path(str(m.__file__)) for m in (numpy, find_cffi()))]
    folders = list(dict.fromkeys(str(path.resolve().parents[1]) for path in inside))
    return (
        "import importlib.util as u, sys\n"
        "added = []\n"
        "if not all(map(u.find_spec, ('openaclnn', 'numpy', '_cffi_backend'))):\n"
        f"    added += (p for p in {folders!r} if p not in sys.path)\n"
        "sys.path.extend(added)\n"
    )


def _baked(toolchain: Toolchain) -> dict[str, str]:
    return {
        "OPENACLNN_EXECUTABLE": sys.executable or "python3",
        "OPENACLNN_LIBPYTHON": toolchain.libpython,
        "OPENACLNN_FIND_PACKAGES": _find_packages(),
    }


def _key(toolchain: Toolchain) -> str:
    parts = [
        __version__, sys.version, platform.machine(), importlib.metadata.version("cffi"),
        glue.cffi_declarations(), glue.stub_source(), _texts(_OWN_C), _texts(("build.py", "packages.py")),
        json.dumps([header_files(), _baked(toolchain), toolchain.compiler, toolchain.link]),
    ]  # fmt: skip
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return f"{__version__}-{sys.implementation.cache_tag}-{digest}"


def installation(cache: Path | None = None) -> Installation:
    """The C side for this Python, built if it is not there yet; BuildError says what is missing."""
    find_cffi()
    toolchain = find_toolchain()
    folder = cache or writable_folder()
    target = folder / _key(toolchain)
    try:
        why = make_trusted(folder)
        if why is not None:
            raise BuildError(f"cannot build in {folder}: {why}; set OPENACLNN_CACHE_DIR")
        if target.is_dir():
            return _trusted(target)
        work = Path(tempfile.mkdtemp(prefix="building-", dir=folder))
    except OSError as error:
        raise BuildError(f"cannot write to {folder}: {error}; set OPENACLNN_CACHE_DIR") from None
    try:
        (work / MARK).touch(mode=0o600)
        _build(work, target, toolchain)
        work.chmod(0o755)
        _keep_to_us(work)
        work.rename(target)  # at once: another process sees all of it or nothing
    except OSError as error:
        if not target.is_dir():  # nobody else was faster
            raise BuildError(f"cannot build in {folder}: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _trusted(target)


def _trusted(target: Path) -> Installation:
    why = why_untrusted_tree(target)
    if why is not None:
        raise BuildError(f"libraries that others can change are not used: {why}; remove {target}")
    return Installation(target)


def _keep_to_us(folder: Path) -> None:
    """Let nobody else write there, whatever the umask says."""
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o022)


def is_installation(folder: Path) -> bool:
    """Whether a folder is one of these, whole or not; earlier versions left no mark."""
    return (folder / MARK).is_file() or (folder / "lib" / f"lib{CORE}.so").is_file()


def _build(work: Path, target: Path, toolchain: Toolchain) -> None:
    for name, text in header_files().items():
        path = work / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    source, lib = work / "source", work / "lib"
    source.mkdir()
    lib.mkdir()
    for name, leads_to in packages.LINKS.items():
        path = work / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(leads_to)
    _emit_core(source, toolchain)
    toolchain.run(
        ["-shared", "-fPIC", "-O2", "-fvisibility=hidden", *toolchain.includes,
         f"{CORE}.c", "-o", f"../lib/lib{CORE}.so", f"-Wl,-soname,lib{CORE}.so",
         "-Wl,-z,nodelete", *toolchain.link],  # Python knows functions of it for good
        source,
    )  # fmt: skip
    (source / "stubs.c").write_text(glue.stub_source(), encoding="utf-8")
    toolchain.run(["-c", "-fPIC", "-O2", "stubs.c", "-o", "stubs.o"], source)
    for name in LIBRARIES:
        toolchain.run(
            ["-shared", "stubs.o", "-o", f"../lib/lib{name}.so", f"-Wl,-soname,lib{name}.so",
             "-L../lib", f"-l{CORE}", "-Wl,-rpath,$ORIGIN"],
            source,
        )  # fmt: skip
    shutil.rmtree(source)
    python = "libpython" if toolchain.libpython else f"lib{CORE}"
    for name, text in packages.package_files(target, __version__, python).items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _emit_core(source: Path, toolchain: Toolchain) -> None:
    ffi = find_cffi().FFI()
    ffi.embedding_api(glue.cffi_declarations())
    ffi.cdef("void *openaclnn_new(size_t size);\nvoid openaclnn_interrupt_later(void);")
    ffi.cdef("int32_t *openaclnn_ending_words(void);\nvoid openaclnn_watch_exit(void);")
    ffi.cdef("int openaclnn_in_c_program(void);")
    ffi.embedding_init_code(
        f"from {_MODULE} import ffi, lib\n"
        "from openaclnn.capi.bridge import connect\n"
        f"connect(ffi, lib, {glue.digest()!r})\n"
    )
    defines = "".join(
        f"#define {name} {_c_string(value)}\n" for name, value in _baked(toolchain).items()
    )
    ffi.set_source(_MODULE, f"#define _GNU_SOURCE\n{defines}{_texts(_OWN_C)}")
    with contextlib.redirect_stdout(io.StringIO()):  # cffi announces what it writes
        ffi.emit_c_code(str(source / f"{CORE}.c"))


def _texts(names: Sequence[str]) -> str:
    """Files of this folder, which may lie in an archive."""
    folder = importlib.resources.files("openaclnn.capi")
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _c_string(text: str) -> str:
    safe = set(range(32, 127)) - set(b'"\\?')
    data = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(byte) if byte in safe else f"\\{byte:03o}" for byte in data) + '"'
