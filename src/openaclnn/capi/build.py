"""Builds the headers and libraries into a folder, once per version, Python and set of functions.

The folder is laid out like the toolkit: `include/{acl,aclnn,aclnnop}`, `lib64/` (which is `lib/`), `set_env.sh`,
`bin/setenv.bash` and the other names that folders have there (`LINKS`);
beside them `lib/cmake/openaclnn/`, `lib/pkgconfig/` and `share/openaclnn/`. It lies below the user's cache
(`OPENACLNN_CACHE_DIR`, else `$XDG_CACHE_HOME/openaclnn`, else `~/.cache/openaclnn`).
It takes a C compiler, this Python's headers and its library, and cffi.
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
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openaclnn.capi import glue
from openaclnn.capi.prototypes import header_files
from openaclnn.core.trust import cache_folder, make_trusted, warn_of, why_untrusted_tree
from openaclnn.core.version import __version__

LIBRARIES = ("ascendcl", "acl_rt", "nnopbase", "opapi", "opapi_nn", "opapi_math", "aclnn_ops_infer", "aclnn_ops_train",
             "aclnn_math")  # fmt: skip
"""The libraries that programs link or open by name. Each of them exports every function."""

CORE = "openaclnn_core"
MARK = ".openaclnn"
"""A file by which a folder of ours is known."""
_MODULE = "_openaclnn_core"
_SOURCES = ("arrays.c", "start.c", "fork.c", "exit.c", "crossing.c")

LINKED = ("ascendcl", "nnopbase", "opapi_math", "opapi_nn")
"""What the interface's build guide tells programs to link."""

INCLUDED = ("", "aclnn", "aclnnop")
"""Below `include/`: programs name headers with and without their folder."""

LINKS = {
    "lib64": "lib",
    "lib/stub": ".",
    **{
        f"{part}/{name}": f"../{name}"
        for part in (f"{platform.machine()}-linux", "runtime")
        for name in ("include", "lib64")
    },
    "opp/lib64": "../lib64",
    # A build file adds these to a folder that it takes for the one above the toolkit's.
    **dict.fromkeys(("latest", "cann", "ascend-toolkit"), "."),
}
"""Other names that the toolkit has for the same folders, below the installation, and where they lead."""


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
        return [f"-I{self.include / folder}" for folder in INCLUDED]

    @property
    def libs(self) -> list[str]:
        """Link arguments; with the run path in them no environment variable is needed."""
        names = [f"-l{name}" for name in LINKED]
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
        glue.cffi_declarations(), glue.stub_source(), _texts(_SOURCES), _texts(("build.py",)),
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
    _write(work / "include", header_files())
    source, lib = work / "source", work / "lib"
    source.mkdir()
    lib.mkdir()
    for name, leads_to in LINKS.items():
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
    _write(work, package_files(target, __version__, python))


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _emit_core(source: Path, toolchain: Toolchain) -> None:
    ffi = find_cffi().FFI()
    ffi.embedding_api(glue.cffi_declarations())
    ffi.cdef("void *openaclnn_new(size_t size);\nvoid openaclnn_interrupt_later(void);")
    ffi.cdef("int32_t *openaclnn_ending_words(void);\nvoid openaclnn_watch_exit(void);")
    ffi.cdef("int openaclnn_in_c_program(void);\nvoid openaclnn_call_last(void (*function)(void));")
    ffi.embedding_init_code(
        f"from {_MODULE} import ffi, lib\n"
        "from openaclnn.capi.bridge import connect\n"
        f"connect(ffi, lib, {glue.digest()!r})\n"
    )
    defines = "".join(
        f"#define {name} {_c_string(value)}\n" for name, value in _baked(toolchain).items()
    )
    ffi.set_source(_MODULE, f"#define _GNU_SOURCE\n{defines}{_texts(_SOURCES)}")
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


class BuildError(RuntimeError):
    """The C side cannot be built here; the text says what is missing and how to get it."""


@dataclass(frozen=True)
class Toolchain:
    """How to compile against this Python and how to link with it."""

    compiler: tuple[str, ...]
    includes: tuple[str, ...]
    link: tuple[str, ...]
    libpython: str  # the name by which the loader knows it; "" where it is linked in

    def run(self, arguments: Sequence[str], folder: Path) -> None:
        """Run the compiler in a folder; BuildError carries what it said."""
        command = [*self.compiler, *arguments]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        except OSError as error:
            raise BuildError(f"cannot run {command[0]}: {error}") from None
        if done.returncode:
            raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()[-4000:]}")


def find_cffi() -> Any:
    """The `cffi` package, which only the C side needs."""
    try:
        import cffi
    except ImportError:
        raise BuildError(
            "the C side needs the Python package cffi: python -m pip install cffi"
        ) from None
    return cffi


def _compiler() -> tuple[str, ...]:
    asked = os.environ.get("CC", "").split()
    if asked:
        if shutil.which(asked[0]) is None:
            raise BuildError(f"the C side needs a C compiler, and CC names {asked[0]!r}: not found")
        return tuple(asked)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return (name,)
    raise BuildError(
        "the C side needs a C compiler, and there is none: cc, gcc and clang are not on PATH. "
        "Install one (Debian: apt install gcc; Fedora: dnf install gcc) or name it in CC"
    )


def _includes() -> tuple[str, ...]:
    folders = dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude"))
    for folder in folders:
        if Path(folder, "Python.h").exists():
            return tuple(f"-I{name}" for name in folders)
    raise BuildError(
        f"the C side needs the headers of this Python, and {next(iter(folders))}/Python.h is not "
        "there (Debian: apt install python3-dev; Fedora: dnf install python3-devel)"
    )


def _libpython() -> tuple[tuple[str, ...], str]:
    """The link arguments for the interpreter, and the name of its shared library."""
    version = str(sysconfig.get_config_var("LDVERSION"))
    folder = str(sysconfig.get_config_var("LIBDIR"))
    shared = str(sysconfig.get_config_var("INSTSONAME") or "")
    system = [*shlex.split(str(sysconfig.get_config_var("SYSLIBS") or "")), "-ldl", "-lpthread"]
    if ".so" in shared and Path(folder, shared).exists():
        link = (str(Path(folder, shared)), f"-Wl,-rpath,{folder}", *system)
        return link, shared
    for candidate in (Path(folder), Path(str(sysconfig.get_config_var("LIBPL")))):
        archive = candidate / f"libpython{version}.a"
        if archive.exists():
            # All of it: extension modules find the interpreter's symbols here and nowhere else.
            extra = shlex.split(str(sysconfig.get_config_var("LIBS") or ""))
            whole = ("-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive")
            return (*whole, *extra, *system), ""
    raise BuildError(
        f"the C side needs the library of this Python, and neither {folder}/libpython{version}.so "
        f"nor libpython{version}.a is there (Debian: apt install libpython3-dev; pyenv: build with "
        "PYTHON_CONFIGURE_OPTS=--enable-shared)"
    )


def find_toolchain() -> Toolchain:
    """Everything but cffi; BuildError says what is missing."""
    compiler, includes = _compiler(), _includes()
    link, libpython = _libpython()
    return Toolchain(compiler, includes, link, libpython)


# The files by which CMake, pkg-config, shells and leak checkers find their way with the C side.
_PKG_CONFIG = """\
prefix={root}
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: openaclnn
Description: The Ascend aclnn operator interface on any machine
Version: {version}
Cflags: {flags}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} {links}
"""

_CMAKE = """\
# find_package(openaclnn CONFIG) gives the target openaclnn::openaclnn.
set(openaclnn_VERSION "{version}")
get_filename_component(openaclnn_ROOT_FOLDER "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
set(openaclnn_INCLUDE_DIRS)
foreach(openaclnn_name {folders})
  list(APPEND openaclnn_INCLUDE_DIRS "${{openaclnn_ROOT_FOLDER}}/${{openaclnn_name}}")
endforeach()
set(openaclnn_LIBRARY_DIRS "${{openaclnn_ROOT_FOLDER}}/lib")
set(openaclnn_LIBRARIES)
if(NOT TARGET openaclnn::openaclnn)
  add_library(openaclnn::openaclnn INTERFACE IMPORTED)
  foreach(openaclnn_name {names})
    add_library(openaclnn::${{openaclnn_name}} SHARED IMPORTED)
    set_target_properties(openaclnn::${{openaclnn_name}} PROPERTIES
      IMPORTED_LOCATION "${{openaclnn_LIBRARY_DIRS}}/lib${{openaclnn_name}}.so"
      IMPORTED_SONAME "lib${{openaclnn_name}}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${{openaclnn_INCLUDE_DIRS}}")
    list(APPEND openaclnn_LIBRARIES openaclnn::${{openaclnn_name}})
  endforeach()
  set_property(TARGET openaclnn::openaclnn PROPERTY
    INTERFACE_LINK_LIBRARIES "${{openaclnn_LIBRARIES}}")
endif()
"""

_CMAKE_VERSION = """\
set(PACKAGE_VERSION "{version}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"""


_SET_ENV = """\
# . set_env.sh: for builds that look for the toolkit, and programs linked without a run path. For POSIX shells.
export ASCEND_HOME_PATH={quoted}
export ASCEND_TOOLKIT_HOME="$ASCEND_HOME_PATH"
export ASCEND_INSTALL_PATH="$ASCEND_HOME_PATH"
export ASCEND_CUSTOM_PATH="$ASCEND_HOME_PATH"
export ASCEND_OPP_PATH="$ASCEND_HOME_PATH/opp"
# First in the search path, and there once however often this is read.
openaclnn_paths=":${{LD_LIBRARY_PATH-}}:"
while [ "$openaclnn_paths" != "${{openaclnn_paths#*":$ASCEND_HOME_PATH/lib64:"}}" ]; do
  openaclnn_paths="${{openaclnn_paths%%":$ASCEND_HOME_PATH/lib64:"*}}:${{openaclnn_paths#*":$ASCEND_HOME_PATH/lib64:"}}"
done
openaclnn_paths="${{openaclnn_paths#:}}"
openaclnn_paths="${{openaclnn_paths%:}}"
export LD_LIBRARY_PATH="$ASCEND_HOME_PATH/lib64${{openaclnn_paths:+:$openaclnn_paths}}"
unset openaclnn_paths
"""

_SETENV_BASH = """\
# source bin/setenv.bash: the toolkit's other name for set_env.sh.
. {quoted}/set_env.sh
"""

_SUPPRESSIONS = """\
# LSAN_OPTIONS=suppressions=THIS_FILE: what the interpreter in the libraries keeps until the process ends.
# Leaks of the program itself are still told, arrays from aclGetViewShape and its relatives included.
leak:{python}
leak:.cpython-
leak:libllvmlite
leak:libcrypto
"""


def package_files(root: Path, version: str, python: str) -> dict[str, str]:
    """The files by their path below the installation, which is going to be at `root`.

    `python` is the name of the library with the interpreter in it.
    """
    links = " ".join(f"-l{name}" for name in LINKED)
    flags = " ".join(f"-I${{includedir}}/{folder}".rstrip("/") for folder in INCLUDED)
    folders = " ".join(f"include/{folder}".rstrip("/") for folder in INCLUDED)
    values = {
        "root": root, "version": version, "links": links, "names": " ".join(LINKED),
        "flags": flags, "folders": folders, "python": python, "quoted": shlex.quote(str(root)),
    }  # fmt: skip
    return {
        "lib/pkgconfig/openaclnn.pc": _PKG_CONFIG.format(**values),
        "lib/cmake/openaclnn/openaclnn-config.cmake": _CMAKE.format(**values),
        "lib/cmake/openaclnn/openaclnn-config-version.cmake": _CMAKE_VERSION.format(**values),
        "share/openaclnn/lsan.supp": _SUPPRESSIONS.format(**values),
        "set_env.sh": _SET_ENV.format(**values),
        "bin/setenv.bash": _SETENV_BASH.format(**values),
    }
