"""Files and folders of others: nothing in them is run, written or removed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import openaclnn
from openaclnn.capi.build import BuildError, installation, writable_folder
from openaclnn.cli import main
from openaclnn.core import trust
from openaclnn.core.trust import (
    CODE_MARK,
    cache_folder,
    make_trusted,
    read_trusted,
    why_untrusted,
    why_untrusted_tree,
    write_trusted,
)
from openaclnn.engines import gpu

SOURCE = str(Path(openaclnn.__file__).parents[1])
STRANGER = 12345
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no owners of this kind")  # fmt: skip
root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give files to another user",
)

CALL = """
import numpy as np, openaclnn
from openaclnn.engines.machine import cache
compiles = []
real = cache._compile
cache._compile = lambda source: compiles.append(1) or real(source)
x = np.ones((2, 3), np.float32)
assert (openaclnn.elu_backward(x, x) == 1).all()
print(len(compiles))
"""


@pytest.fixture(autouse=True)
def _tell_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_warned", set())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    return kept


def call(environment: dict[str, str | None], **options: Any) -> tuple[int, str]:
    """How many kernels a new process compiles, and what it says on stderr."""
    known = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    known = {name: value for name, value in known.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-c", CALL], env=known, capture_output=True, text=True, check=False, **options
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a process has compiled for a call."""
    folder = tmp_path_factory.mktemp("compiled")
    count, told = call({"OPENACLNN_CACHE_DIR": str(folder)})
    assert (count, told) == (len([*folder.glob("*.o")]), "")
    return folder


# --- which are trusted --------------------------------------------------------------------------------------


def test_folders_for_the_caller_alone_are_trusted(folder: Path) -> None:
    assert why_untrusted(folder) is None
    assert why_untrusted(folder / "not" / "there" / "yet") is None
    folder.chmod(0o755)  # others may read
    assert why_untrusted(folder) is None


@pytest.mark.parametrize(("mode", "who"), [(0o777, "everybody"), (0o1777, "everybody"), (0o770, "group")])  # fmt: skip
def test_folders_that_others_can_write_are_not(folder: Path, mode: int, who: str) -> None:
    below = folder / "below"
    below.mkdir(mode=0o700)
    folder.chmod(mode)
    told = why_untrusted(folder)
    assert told is not None
    assert told.startswith(f"{folder} can be written by {who}")
    # Above another one the sticky bit is enough: nobody can move what is the caller's.
    assert why_untrusted(below) == (None if mode & stat.S_ISVTX else told)


@root
def test_folders_and_links_of_others_are_not(folder: Path) -> None:
    below, link = folder / "below", folder / "link"
    below.mkdir(mode=0o700)
    link.symlink_to(below)
    assert why_untrusted(link) is None
    os.lchown(link, STRANGER, -1)
    told = f"{link} belongs to user {STRANGER}, not to user 0 or root"
    assert why_untrusted(link / "more") == told
    assert why_untrusted(below) is None
    os.chown(folder, STRANGER, -1)
    assert why_untrusted(below) == f"{folder} belongs to user {STRANGER}, not to user 0 or root"


def test_what_a_link_names_is_held_to_the_same(tmp_path: Path, folder: Path) -> None:
    for number, target in enumerate((folder, Path("..", folder.parent.name, "kept"))):
        folder.chmod(0o700)
        link = tmp_path / f"link{number}"
        link.symlink_to(target)
        assert why_untrusted(link / "below") is None
        folder.chmod(0o777)
        assert why_untrusted(link / "below") == f"{folder} can be written by everybody"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "too many symbolic links" in str(why_untrusted(tmp_path / "loop"))


def test_new_folders_are_the_callers_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        assert make_trusted(folder / "a" / "b") is None
        write_trusted(folder / "a" / "b" / "file", b"held")
    finally:
        os.umask(before)
    for path, mode in (("a", 0o700), ("a/b", 0o700), ("a/b/file", 0o600)):
        assert stat.S_IMODE((folder / path).stat().st_mode) == mode


def test_files_are_checked_as_they_are_opened(folder: Path) -> None:
    path = folder / "file"
    write_trusted(path, b"held")
    assert read_trusted(path) == b"held"
    (folder / "link").symlink_to(path)
    os.mkfifo(folder / "pipe", 0o600)
    assert [read_trusted(folder / name) for name in ("link", "pipe", "none")] == [None] * 3
    path.chmod(0o606)
    with pytest.warns(RuntimeWarning, match=f"{path} is ignored: {path} can be written by every"):
        assert read_trusted(path) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was told
        assert read_trusted(path) is None
    assert os.listdir(folder) != []
    assert not [n for n in os.listdir(folder) if "writing" in n]


# --- compiled code ------------------------------------------------------------------------------------------


@root
@pytest.mark.parametrize("whose", ["folder", "files"])
def test_code_of_a_stranger_is_not_run(compiled: Path, folder: Path, whose: str) -> None:
    place: dict[str, str | None] = {"OPENACLNN_CACHE_DIR": str(folder)}
    copies = [shutil.copy2(path, folder) for path in compiled.iterdir()]
    count = len([*folder.glob("*.o")])
    if whose == "folder":
        assert call(place) == (0, "")
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    for path in kept:
        os.chown(path, STRANGER, -1)
    if whose == "folder":
        os.chown(folder, STRANGER, -1)
    again, told = call(place)
    assert again == count  # nothing was read
    if whose == "files":  # each is replaced
        assert told.count("is ignored: ") == len(copies)
        assert call(place) == (0, "")
    else:
        why = f"belongs to user {STRANGER}"
        assert told.count(f"compiled code in {folder} is ignored: {folder} {why}") == 1
        assert told.count("RuntimeWarning") == 1
        assert {path: path.read_bytes() for path in folder.iterdir()} == kept


@root
def test_another_user_trusts_root_and_not_the_other_way_round() -> None:
    with tempfile.TemporaryDirectory(prefix="openaclnn-test-") as place:
        roots, others, locked = (Path(place, name) for name in ("roots", "others", "locked"))
        os.chmod(place, 0o755)  # the other one must get there
        for folder in (roots, others, locked):
            folder.mkdir(mode=0o755)
            write_trusted(folder / "file", b"root's")
            (folder / "file").chmod(0o644)
        os.chown(others, STRANGER, -1)
        os.chown(locked, STRANGER + 1, -1)
        child = os.fork()
        if child == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                os.setgroups([])
                os.setuid(STRANGER)
                read = [read_trusted(folder / "file") for folder in (roots, others, locked)]
                write_trusted(others / "mine", b"mine")
                good = read == [b"root's", b"root's", None] and read_trusted(others / "mine") == b"mine"  # fmt: skip
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (others / "mine").read_bytes() == b"mine"
        with pytest.warns(RuntimeWarning, match=f"{others} belongs to user {STRANGER}, not to"):
            assert read_trusted(others / "mine") is None


def test_without_a_home_there_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("OPENACLNN_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/me/.cache/openaclnn")
    for home in ("here", "", "~"):
        monkeypatch.setenv("HOME", home)
        assert cache_folder() is None
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no entry among the users
    assert cache_folder() is None
    assert main(["cache"]) == 2


def test_calls_and_builds_work_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = {"HOME": "relative", "XDG_CACHE_HOME": "also", "OPENACLNN_CACHE_DIR": None}
    count, told = call(nowhere, cwd=tmp_path)
    assert count > 0
    assert told == ""
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("OPENACLNN_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "relative")
    monkeypatch.setenv("XDG_CACHE_HOME", "also")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert writable_folder() == tmp_path / f"openaclnn-{os.getuid()}"


# --- the C libraries ----------------------------------------------------------------------------------------


def test_libraries_that_others_can_change_are_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cffi")
    monkeypatch.setattr("openaclnn.capi.build._key", lambda toolchain: "key")
    monkeypatch.setattr("openaclnn.capi.build._build", _lay)
    before = os.umask(0o002)
    try:
        built = installation(folder)
    finally:
        os.umask(before)
    assert why_untrusted_tree(built.root) is None
    assert installation(folder) == built
    (built.lib / "libascendcl.so").chmod(0o666)
    with pytest.raises(BuildError, match=r"libascendcl.so can be written by everybody; remove /"):
        installation(folder)
    (built.lib / "libascendcl.so").chmod(0o644)
    (built.lib / "more.so").symlink_to("/usr/lib")
    with pytest.raises(BuildError, match=r"more.so leads out of "):
        installation(folder)
    folder.chmod(0o777)
    with pytest.raises(BuildError, match=f"cannot build in {folder}: {folder} can be written by"):
        installation(folder)
    monkeypatch.delenv("OPENACLNN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    with pytest.warns(RuntimeWarning, match="for the C libraries, is ignored: "):
        assert writable_folder().name == f"openaclnn-{os.getuid()}"


def _lay(work: Path, target: Path, toolchain: Any) -> None:
    (work / "lib").mkdir()
    (work / "lib64").symlink_to("lib")
    (work / "lib" / "libascendcl.so").write_bytes(b"")


# --- the command --------------------------------------------------------------------------------------------


def test_only_what_is_ours_is_cleared(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(folder))
    others = tmp_path / "others"
    others.write_bytes(CODE_MARK)
    (folder / f"{'a' * 40}.o").write_bytes(CODE_MARK + b"...")
    (folder / f"{'a' * 40}.names").write_bytes(CODE_MARK + b"...")
    (folder / f"{'a' * 40}.sources").write_bytes(CODE_MARK + b"...")
    (folder / "writing-abcd1234").write_bytes(CODE_MARK)
    (folder / ".openaclnn-0123456789abcdef.part").write_bytes(CODE_MARK)
    (folder / f"{'b' * 40}.o").write_bytes(b"an object file of the user's")
    (folder / "mine.o").write_bytes(CODE_MARK)
    (folder / f"{'c' * 40}.o").symlink_to(others)
    for name, mark in (("building-abcd1234", True), ("building-plans", True), ("building-abcd5678", False)):  # fmt: skip
        (folder / name).mkdir()
        if mark:
            (folder / name / ".openaclnn").touch()
    (folder / "0.1-cpython-311-0123456789abcdef").symlink_to(tmp_path)
    left = {"building-plans", "building-abcd5678", "mine.o", f"{'b' * 40}.o", f"{'c' * 40}.o", "0.1-cpython-311-0123456789abcdef"}  # fmt: skip
    folder.chmod(0o777)
    assert main(["cache", "clear", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == 0
    assert "can be written by everybody" in told["ignored"]
    folder.chmod(0o700)
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 6
    assert {path.name for path in folder.iterdir()} == left
    assert others.exists()


def test_doctor_tells_whether_the_cache_is_trusted(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(folder))

    def row() -> tuple[str, str]:
        main(["doctor", "--json"])
        (entry,) = (each for each in json.loads(capsys.readouterr().out) if each["part"] == "cache")
        return entry["state"], entry["about"]

    assert row() == ("there", "trusted: 0 files, 0.0 MB")
    folder.chmod(0o777)
    assert row() == ("ignored", f"{folder} can be written by everybody")
    assert main(["warmup"]) == 1
    assert "can be written by everybody" in capsys.readouterr().err


def test_triton_gets_another_folder_where_its_own_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    triton = SimpleNamespace(knobs=SimpleNamespace(cache=SimpleNamespace(dir=str(folder))))
    gpu._leave_untrusted_cache(triton)
    assert os.environ["TRITON_CACHE_DIR"] == str(folder)
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"Triton's cache {folder} is ignored: "):
        gpu._leave_untrusted_cache(triton)
    assert why_untrusted(Path(os.environ["TRITON_CACHE_DIR"])) is None
    assert os.environ["TRITON_CACHE_DIR"] != str(folder)
