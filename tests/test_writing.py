"""Files are written whole or not at all, and nothing of the user's is lost on the way: not what is there, not what is read."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openaclnn.cli import main
from openaclnn.core import writing
from openaclnn.core.writing import (
    remove_unfinished,
    replacing,
    replacing_text,
    reserve,
    write_text,
)
from openaclnn.testing import manifest as folders
from openaclnn.testing.drawing import Recipe
from openaclnn.testing.manifest import write_cases

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def write_half(error: type[BaseException]) -> None:
    with replacing_text("x") as text:
        text.write("half")
        raise error


def test_a_file_is_there_when_it_is_whole(place: Path) -> None:
    Path("x").write_text("old")
    with replacing("x") as file:
        file.write(b"new")
        file.flush()
        assert Path("x").read_text() == "old"
    assert Path("x").read_text() == "new"
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            write_half(error)
    assert (names(place), Path("x").read_text()) == (["x"], "new")


def test_names_cannot_be_taken_before(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that was guessed: neither a file nor a link is opened."""
    monkeypatch.setattr("secrets.token_hex", lambda count: "guessed")
    Path("victim").write_text("kept")
    part = Path(".openaclnn-guessed.part")
    for make in (part.touch, lambda: part.symlink_to("victim"), lambda: part.symlink_to("none")):
        make()
        with pytest.raises(FileExistsError):
            write_text("x", "text")
        part.unlink(missing_ok=True)
    assert (names(place), Path("victim").read_text()) == (["victim"], "kept")


def test_modes_are_those_of_open(place: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text("new", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("new").stat().st_mode) == 0o640
    Path("new").chmod(0o604)
    write_text("new", "again")
    assert stat.S_IMODE(Path("new").stat().st_mode) == 0o604


def test_links_are_followed_to_their_file(place: Path) -> None:
    Path("deep").mkdir()
    Path("deep/file").write_text("old")
    Path("link").symlink_to("deep/file")
    Path("other").symlink_to("deep/new")
    write_text("link", "new")
    write_text("other", "made")
    assert Path("link").is_symlink()
    assert (Path("deep/file").read_text(), Path("deep/new").read_text()) == ("new", "made")
    assert names(place / "deep") == ["file", "new"]


def test_pipes_and_devices_are_written_as_they_are(place: Path) -> None:
    write_text("/dev/null", "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    write_text("pipe", "text")
    assert reader.communicate()[0] == "text"
    program = "from openaclnn.core.writing import write_text as w; w('/dev/stdout', 'one\\n'); print('two')"
    for redirect in ("| cat", "> out; cat out"):
        line = f'{sys.executable} -c "{program}" {redirect}'
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        assert done.stdout.split()[-1] == "two"
    assert names(place) == ["out", "pipe"]


def test_what_cannot_be_written_is_named(place: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        write_text("none/x", "")
    Path("folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder"):
        write_text("folder", "")
    assert names(place) == ["folder"]


@not_root
def test_what_may_not_be_written_is_not_replaced(place: Path) -> None:
    Path("x").write_text("kept")
    Path("x").chmod(0o444)
    with pytest.raises(PermissionError, match="x"):
        write_text("x", "")
    assert Path("x").read_text() == "kept"


def test_space_is_set_aside_where_the_system_cannot(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def unsupported(*arguments: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    for substitute in (unsupported, None):
        if substitute is None:
            monkeypatch.delattr(os, "posix_fallocate")
        else:
            monkeypatch.setattr(os, "posix_fallocate", substitute)
        with replacing("x") as file:
            file.write(b"head")
            reserve(file, (1 << 20) + 5)
        assert Path("x").stat().st_size == (1 << 20) + 5
        assert Path("x").stat().st_blocks * 512 >= 1 << 20


def full(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


RUN = ["run", "elu", "--self", "x.npy", "--out"]


@pytest.mark.parametrize("out", ["o.npy", "o.bin"])
def test_a_full_disk_ends_a_run_with_a_sentence(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    np.save("x.npy", np.ones(100, np.float32))
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert main([*RUN, out]) == 2
    assert capsys.readouterr() == ("", f"openaclnn: {out}: No space left on device\n")
    assert names(place) == ["x.npy"]


@pytest.mark.parametrize("suffix", ["npy", "npz", "pt"])
def test_a_limit_of_sizes_ends_a_run_with_a_sentence(place: Path, suffix: str) -> None:
    """Another process, with files of 64 KB at most: writing beyond would be SIGXFSZ, or SIGBUS where it is mapped."""
    np.save("x.npy", np.ones(1 << 16, np.float32))

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    done = subprocess.run(
        [sys.executable, "-m", "openaclnn", *RUN, f"o.{suffix}"], capture_output=True, text=True, check=False,
        preexec_fn=limited, env=os.environ | {"OPENACLNN_ENGINE": "numpy"},  # which compiles nothing: no other file is written
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, f"openaclnn: o.{suffix}: File too large\n")
    assert names(place) == ["x.npy"]


def test_a_users_file_is_read_and_kept_whatever_it_is_called(place: Path) -> None:
    np.save(".o.part.npy", np.float32([1, 2, 3]))
    assert main(["run", "elu", "--self", ".o.part.npy", "--out", "o.npy"]) == 0
    assert np.load("o.npy").tolist() == np.load(".o.part.npy").tolist() == [1, 2, 3]
    assert names(place) == [".o.part.npy", "o.npy"]


PROGRAM = """
import sys, time
from openaclnn.cli import main
import openaclnn.cli.run as run
def wait(*given):
    print("waiting", flush=True)
    for _ in range(600):  # Python hears a signal that comes before a sleep behind it
        time.sleep(0.1)
run.run_in_chunks = wait
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(place: Path, number: int) -> None:
    np.save("x.npy", np.ones(4, np.float32))

    def usual() -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *RUN, "o.npy"], stdout=subprocess.PIPE, text=True, preexec_fn=usual
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    assert any(name.endswith(".part") for name in names(place))
    process.send_signal(number)
    process.stdout.close()
    assert process.wait(30) == (130 if number == signal.SIGINT else -number)
    assert names(place) == ["x.npy"]


def test_handlers_are_put_back(place: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["list"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_unfinished_files_are_known(place: Path) -> None:
    with replacing("x"):
        assert len(writing._unfinished) == 1
        for part in writing._unfinished:
            shutil.copy(part, "copy")
        remove_unfinished()
        assert names(place) == ["copy"]
        shutil.move("copy", *writing._unfinished)
    assert not writing._unfinished
    assert names(place) == ["x"]


# Inputs and outputs


TABLE = "testcase_name,api_name,tensor_view_shapes,tensor_dtypes\nx,aclnnElu,\"((2,),(2,))\",\"('float32','float32')\"\n"


def test_a_list_is_not_written_over_by_its_results(place: Path, capsys: Any) -> None:
    Path("a.csv").write_text(TABLE)
    Path("soft").symlink_to("a.csv")
    os.link("a.csv", "hard")
    for name in ("a.csv", "./a.csv", str(place / "a.csv"), "soft", "hard"):
        assert main(["cases", "a.csv", "--csv", name]) == 2, name
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "is read and would be written over" in err
    Path("folder").mkdir()
    Path("folder/cases.json").write_text("[]")
    assert main(["cases", "folder/cases.json", "--golden", "folder"]) == 2
    assert (Path("a.csv").read_text(), Path("folder/cases.json").read_text()) == (TABLE, "[]")
    assert main(["cases", "a.csv", "--csv", "/dev/null"]) == 0


def test_an_input_of_a_run_is_not_written_over(place: Path, capsys: Any) -> None:
    np.save("a.npy", np.ones(3, np.float32))
    Path("soft.npy").symlink_to("a.npy")
    os.link("a.npy", "hard.npy")
    before = Path("a.npy").read_bytes()
    for name in ("a.npy", "./a.npy", "soft.npy", "hard.npy"):
        assert main(["run", "elu", "--self", "a.npy", "--out", name, "--force"]) == 2, name
        assert "is read and would be written over" in capsys.readouterr().err
    assert Path("a.npy").read_bytes() == before


def test_two_outputs_are_two_files(place: Path, capsys: Any) -> None:
    np.save("x.npy", np.ones((2, 3), np.float32))
    np.save("t.npy", np.zeros(2, np.int64))
    Path("soft.npy").symlink_to("o.npy")
    line = [
        "run",
        "cross_entropy_loss",
        "--input",
        "x.npy",
        "--target",
        "t.npy",
        "--loss-out",
        "o.npy",
    ]
    for other in ("o.npy", "./o.npy", "soft.npy", str(place / "o.npy")):
        assert main([*line, "--log-prob-out", other]) == 2, other
        assert "would be written twice" in capsys.readouterr().err
    assert not Path("o.npy").exists()


def test_results_of_a_benchmark_and_pictures_are_kept(place: Path, capsys: Any) -> None:
    Path("a.json").write_text(json.dumps({"rows": [], "machine": {}}))
    np.save("x.npy", np.ones(3, np.float32))
    for line in (
        "bench --from a.json --html ./a.json", "bench --from a.json --csv b --html ./b",
        "compare x.npy x.npy --picture ./x.npy",
    ):  # fmt: skip
        assert main(line.split()) == 2, line
        assert "would be written" in capsys.readouterr().err
    assert names(place) == ["a.json", "x.npy"]


# Folders


def make(folder: str | Path, seed: int, *more: str) -> int:
    line = f"golden elu_backward --shape 3 --count 3 --seed {seed} -o {folder}"
    return main([*line.split(), *more])


def state(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder) if (folder / name).is_file()}  # fmt: skip


def test_a_failed_run_leaves_the_old_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make("a", 1) == 0
    before = state(place / "a")
    monkeypatch.setattr("openaclnn.testing.manifest.write_text", full)
    assert make("a", 2, "--force") == 2
    assert make("b/c", 2) == 2
    assert names(place) == sorted(["a", "b", *(f"a/{name}" for name in names(place / "a"))])
    assert state(place / "a") == before


def exchanges(place: Path) -> bool:
    """Whether two folders here get each other's names without a rename."""
    one, other = place / "one", place / "other"
    for each in (one, other):
        each.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", full)
        try:
            folders._exchange(one, other)
        except OSError:
            return False
        finally:
            for each in (one, other):
                each.rmdir()
    return True


KILLED = """
import os, sys
from openaclnn.cli import main
import openaclnn.testing.files
steps = int(sys.argv[1])
def counted(event, given):
    global steps
    if event in ("os.rename", "os.mkdir", "os.link", "os.remove", "os.rmdir", "ctypes.dlopen") or (
        event == "open" and isinstance(given[0], str) and ".openaclnn-" in given[0]
    ):
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(counted)
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("exchange", [True, False], ids=["at once", "in three steps"])
def test_a_folder_is_old_or_new_wherever_the_process_is_killed(place: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """By a walk through the calls that change the disk: at each, what is there is one of two states."""
    assert make("a", 1) == 0
    Path("a/elu_backward_00001/mine").write_text("of the user")
    old = state(place / "a")
    shutil.copytree("a", "b")
    assert make("b", 2, "--force") == 0
    new = state(place / "b")
    assert set(old) == set(new)
    assert old != new
    if not exchange:
        monkeypatch.setattr("ctypes.CDLL", lambda name: None)
    elif not exchanges(place):
        pytest.skip("this disk does not exchange folders in one step")
    seen = []
    rename, link, mkdir, rmtree = os.rename, os.link, os.mkdir, shutil.rmtree

    def watched(call: Any) -> Any:
        def look(*arguments: Any, **more: Any) -> Any:
            seen.append(state(place / "a") if Path("a").exists() else None)
            answer = call(*arguments, **more)
            seen.append(state(place / "a") if Path("a").exists() else None)
            return answer

        return look

    with monkeypatch.context() as patch:
        for name, call in (("rename", rename), ("link", link), ("mkdir", mkdir)):
            patch.setattr(os, name, watched(call))
        patch.setattr(shutil, "rmtree", watched(rmtree))
        assert make("a", 2, "--force") == 0
    assert len(seen) > 10
    assert seen[0] == old
    assert seen[-1] == new
    between = [each for each in seen if each not in (old, new)]
    assert between == [] if exchange else all(each is None for each in between)
    assert names(place) == sorted(["a", "b", *(f"{f}/{n}" for f in "ab" for n in names(place / f))])


def test_a_killed_process_leaves_the_old_or_the_new(place: Path) -> None:
    if not exchanges(place):
        pytest.skip("this disk does not exchange folders in one step")
    assert make("a", 1) == 0
    Path("a/mine").write_text("of the user")
    old = state(place / "a")
    shutil.copytree("a", "b")
    assert make("b", 2, "--force") == 0
    new = state(place / "b")
    renewed = []
    for steps in (0, 30, 48, 1000):
        shutil.rmtree("a")
        shutil.copytree("b", "a")
        assert make("a", 1, "--force") == 0
        line = "golden elu_backward --shape 3 --count 3 --seed 2 -o a --force"
        done = subprocess.run([sys.executable, "-c", KILLED, str(steps), *line.split()], check=False, capture_output=True)  # fmt: skip
        assert done.returncode in (0, -9)
        assert state(place / "a") in (old, new)
        renewed.append(state(place / "a") == new)
    assert (renewed[0], renewed[-1]) == (False, True)


def test_a_case_of_a_list_is_old_or_new(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("l.csv").write_text(TABLE)
    line = ["cases", "l.csv", "--golden", "a", "--seed"]
    assert main([*line, "1"]) == 0
    Path("a/x/mine").write_text("of the user")
    before = state(place / "a/x")
    with monkeypatch.context() as patch:
        patch.setattr("openaclnn.testing.manifest.write_text", full)
        assert main([*line, "2"]) == 1
    assert state(place / "a/x") == before
    assert main([*line, "2"]) == 0
    after = state(place / "a/x")
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] == before[name]] == ["mine"]
    assert not list(place.rglob(".openaclnn-*"))


def test_what_is_not_ours_stays(place: Path) -> None:
    assert make("a", 1, "--format", "bin") == 0
    for name in ("mine.txt", "elu_backward_00002/out.npy", "deep/er/x"):
        Path("a", name).parent.mkdir(parents=True, exist_ok=True)
        Path("a", name).write_text(name)
    Path("a/empty").mkdir()
    Path("a/link").symlink_to("deep")
    Path("a").chmod(0o750)
    assert (
        main(["golden", "elu_backward", "--shape", "3", "--seed", "2", "-o", "a", "--force"]) == 0
    )
    assert names(place / "a") == [
        "deep", "deep/er", "deep/er/x", "elu_backward_00000", *(f"elu_backward_00000/{n}.npy" for n in (
            "golden", "golden_float64", "grad_output", "self_or_result")),
        "elu_backward_00002", "elu_backward_00002/out.npy", "empty", "link", "manifest.json", "mine.txt",
    ]  # fmt: skip
    assert stat.S_IMODE(Path("a").stat().st_mode) == 0o750
    assert os.readlink("a/link") == "deep"


def test_nothing_is_written_over_without_force(place: Path, capsys: Any) -> None:
    Path("a/elu_backward_00001").mkdir(parents=True)
    Path("a/elu_backward_00001/golden.npy").write_text("mine")
    assert make("a", 1) == 2
    assert "a/elu_backward_00001 is there already; --force" in capsys.readouterr().err
    assert names(place) == ["a", "a/elu_backward_00001", "a/elu_backward_00001/golden.npy"]
    assert make("a", 1, "--force") == 0


def test_folders_that_cannot_be_replaced(place: Path, capsys: Any) -> None:
    assert make(".", 1) == 0
    before = state(place)
    assert make(".", 2, "--force") == 2
    assert "the current folder cannot be replaced" in capsys.readouterr().err
    line = ["golden", "--from", "manifest.json", "-o", ".", "--force"]
    assert main(line) == 2
    assert "is read and would be written over" in capsys.readouterr().err
    assert state(place) == before


def test_a_link_to_a_folder_stays(place: Path) -> None:
    assert make("a", 1) == 0
    Path("link").symlink_to("a")
    recipe = Recipe("elu_backward", 2, shape=(3,))
    manifest = write_cases(recipe, Path("link"), force=True)
    assert Path("link").is_symlink()
    assert json.loads(Path("a/manifest.json").read_text()) == json.loads(json.dumps(manifest))
