"""Arrays in files come back as they were, and what cannot be read says why."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openaclnn.core.writing import replacing
from openaclnn.explorer.answers import Refused, verdict_of
from openaclnn.testing import compare
from openaclnn.testing.files import (
    FileError,
    TooLargeError,
    create,
    read_array,
    split_name,
    write_array,
)

TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.float64)


def named(path: Path, array: Any) -> str:
    shape = "x".join(map(str, array.shape))
    return f"{path}:{array.dtype}:{shape}" if path.suffix == ".bin" else str(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".bin", ".safetensors", ".pt"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.in_turns
def test_round_trip(tmp_path: Path, suffix: str, dtype: Any) -> None:
    if suffix == ".pt":
        pytest.importorskip("torch")
    for shape in ((), (3,), (2, 0), (4, 5)):
        array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
        path = tmp_path / f"x{suffix}"
        write_array(path, array)
        back = read_array(named(path, array))
        assert (back.dtype, back.shape) == (array.dtype, shape)
        assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
def test_files_to_fill_in_place(tmp_path: Path, suffix: str, dtype: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    path = tmp_path / f"x{suffix}"
    with replacing(path) as file:
        mapped = create(file, path, array.shape, array.dtype)
        assert mapped is not None
        mapped[...] = array
    assert read_array(named(path, array)).tobytes() == array.tobytes()


def test_other_writers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.ones(2, dtype=torch.bfloat16), "b": torch.zeros(3)}, tmp_path / "x.pt")
    assert read_array(f"{tmp_path}/x.pt:a").dtype == ml_dtypes.bfloat16
    np.savez(tmp_path / "x.npz", a=np.ones(2), b=np.zeros(3))
    assert read_array(f"{tmp_path}/x.npz:b").shape == (3,)
    with pytest.raises(
        FileError, match=r"several arrays in it; name one as FILE:KEY .it holds a, b"
    ):
        read_array(tmp_path / "x.npz")
    with pytest.raises(FileError, match="no 'c' in it"):
        read_array(f"{tmp_path}/x.npz:c")


def test_weights_alone_are_loaded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"path": Path("/")}, tmp_path / "x.pt")
    with pytest.raises(FileError, match=r"weights: it holds more than tensors$"):
        read_array(tmp_path / "x.pt")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    for _ in range(2):
        with pytest.raises(FileError, match=r"not a file of numbers$"):
            read_array(tmp_path / "x.npy")
        (tmp_path / "x.npy").write_bytes(b"junk")


def test_an_empty_file_of_weights_is_told(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "x.pt").touch()
    with pytest.raises(FileError, match=r"weights: \w.*\w$"):
        read_array(tmp_path / "x.pt")


def test_nothing_stands_behind_a_name_of_one_array() -> None:
    with pytest.raises(FileError, match=r"a \.npy file holds one array"):
        split_name("a.npy:fp32")


def test_names() -> None:
    assert split_name("a.bin:float16:2x3").shape == (2, 3)
    assert split_name("a.bin:bf16:").shape == ()
    assert split_name("a.npz:key").key == "key"
    for bad in ("a.txt", "a.bin:float99", "a.bin:float16:2xx3", "a.bin:float16:-1", "a", ""):
        with pytest.raises(FileError):
            split_name(bad)


def test_damaged_files(tmp_path: Path) -> None:
    def safetensors(header: Any, data: bytes = b"") -> bytes:
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + data

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for number, content in enumerate((
        b"", b"1234", b"\xff" * 40, safetensors([]), safetensors({}), safetensors({"a": entry}),
        safetensors({"a": entry | {"dtype": "F99"}}, bytes(8)), safetensors({"a": 3}),
        safetensors({"a": entry | {"shape": [3]}}, bytes(8)), safetensors({"a": entry | {"shape": [-1, -2]}}, bytes(8)),
        safetensors({"a": entry | {"data_offsets": [4, 12]}}, bytes(8)),
    )):  # fmt: skip
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(content)
        with pytest.raises(FileError):
            read_array(path)
    (tmp_path / "x.npy").write_bytes(b"nothing")
    (tmp_path / "x.npz").write_bytes(b"nothing")
    (tmp_path / "x.bin").write_bytes(b"nothing")
    for name in ("x.npy", "x.npz", "x.bin", "x.bin:float16", "x.bin:float32:7", "none.npy"):
        with pytest.raises(FileError):
            read_array(f"{tmp_path}/{name}")


def npy(array: Any, version: tuple[int, int]) -> bytes:
    held = io.BytesIO()
    np.lib.format.write_array(held, array, version)
    return held.getvalue()


def npz(array: Any, **members: bytes) -> bytes:
    held = io.BytesIO()
    np.savez_compressed(held, a=array)
    with zipfile.ZipFile(held, "a") as packed:
        for name, data in members.items():
            packed.writestr(name, data)
    return held.getvalue()


def saved(array: Any, **how: Any) -> bytes:
    torch = pytest.importorskip("torch")
    held = io.BytesIO()
    torch.save(torch.from_numpy(array), held, **how)
    return held.getvalue()


def sound_file(kind: str, folder: Path) -> tuple[str, bytes]:
    """The end of a name, and what a file of that kind holds."""
    array = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    if kind.startswith("npy"):
        return ".npy", npy(array, (int(kind[-1]), 0))
    if kind == "npz":
        return ".npz", npz(array)
    if kind == "pt":
        return ".pt", saved(array)
    if kind == "old pt":
        return ".pt", saved(array, _use_new_zipfile_serialization=False)
    write_array(folder / f"sound.{kind}", array)
    return f".{kind}", (folder / f"sound.{kind}").read_bytes()


def damages(content: bytes) -> Iterator[bytes]:
    """The file cut off at many places, with other bytes at many, and longer than it was."""
    rng = np.random.default_rng(0)
    for end in {*range(0, len(content), max(len(content) // 30, 1)), *range(12)}:
        yield content[:end]
    for place in {*range(min(len(content), 64)), *rng.integers(0, len(content), 30).tolist()}:
        byte = (0, 0xFF, content[place] ^ (1 << int(rng.integers(8))))[place % 3]
        yield content[:place] + bytes([byte]) + content[place + 1 :]
    yield content + b"more"
    yield content[:8] + content
    for _ in range(10):
        yield rng.bytes(len(content))


KINDS = ["npy 1", "npy 2", "npy 3", "npz", "safetensors", "pt", "old pt", "bin"]


@pytest.mark.filterwarnings("ignore")  # of parsers that begin to wonder
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_wrong_with_a_file_is_told(tmp_path: Path, kind: str) -> None:
    suffix, content = sound_file(kind, tmp_path)
    path = tmp_path / f"x{suffix}"
    name = f"{path}:float32" if suffix == ".bin" else str(path)
    path.write_bytes(content)
    assert read_array(name).size == 12
    told = []
    for damaged in damages(content):
        path.write_bytes(damaged)
        try:  # what is still an array can be judged, or is refused for what it holds
            array = read_array(name)
            compare(array, array)
        except ValueError as error:
            told.append(error)
        if suffix != ".pt":
            with contextlib.suppress(Refused):
                verdict_of([path, path], dtype="float32" if suffix == ".bin" else None)
    assert len(told) >= (10 if kind == "bin" else 30)
    for error in told:
        mine = isinstance(error, FileError) and str(error).startswith(f"{path}: ")
        assert mine or "numbers are expected" in str(error)
        assert "\n" not in str(error)


def headed(shape: str, descr: str = "'<f4'") -> bytes:
    """An .npy file whose header says more than is there."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)


@pytest.mark.parametrize(
    "header",
    [
        ("(1000000000000,)",), ("(2**80,)",), (f"({2**80},)",), ("(4611686018427387904, 4)",), ("(-4,)",), ("(-1, -4)",),
        ("(0, -1)",), ("(" + "1," * 80 + ")",), ("(4,)", "'|O'"), ("(4,)", "[('a', '|O')]"), ("(4000000000,)", "'|V0'"),
        ("(4,)", "'<U0'"), ("(True, True, 5)",), ("4",), ("(" * 300,), ("(4,)", "'<M8[ns]'"), ("(4,)", "'x'"), ("(4,)", "3"),
    ],
    ids=lambda header: " ".join(header)[:40],
)  # fmt: skip
def test_headers_that_promise_too_much(tmp_path: Path, header: tuple[str, ...]) -> None:
    for name, content in (
        ("x.npy", headed(*header)),
        ("x.npz", npz([1], **{"b.npy": headed(*header)})),
    ):
        (tmp_path / name).write_bytes(content)
        source = f"{tmp_path}/{name}:b" if name == "x.npz" else tmp_path / name
        with pytest.raises(ValueError, match=r"x\.np|numbers are expected"):
            compare(np.zeros(4, np.float32), read_array(source))


def test_packed_files_have_a_bound(tmp_path: Path) -> None:
    held = io.BytesIO()
    with (
        zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("a.npy", "w") as file,
    ):
        file.write(headed("(2000000,)")[:-16])
        for _ in range(8):
            file.write(bytes(1_000_000))
    (tmp_path / "x.npz").write_bytes(held.getvalue())
    assert len(held.getvalue()) < 100_000
    with pytest.raises(TooLargeError, match=r"x\.npz: 8,000,\d+ bytes unpacked; at most 1,000 "):
        read_array(tmp_path / "x.npz", 1000)
    assert read_array(tmp_path / "x.npz", 1 << 30).shape == (2_000_000,)


def test_one_number_that_stands_for_many_has_a_bound(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.zeros(1).expand(1 << 40), tmp_path / "x.pt")
    with pytest.raises(TooLargeError, match=r"x\.pt: 4,398,046,511,104 bytes unpacked"):
        read_array(tmp_path / "x.pt")
    for held in ([torch.ones(2)], 3, None):
        torch.save(held, tmp_path / "x.pt")
        with pytest.raises(FileError, match="a tensor, or tensors by name, are expected"):
            read_array(tmp_path / "x.pt")


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(npz([1], notes=b"hello"))
    with pytest.raises(FileError, match=r"x\.npz: not a file of numbers"):
        read_array(f"{tmp_path}/x.npz:notes")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".bin", ".safetensors", ".pt"])
def test_pipes_and_folders_are_no_files_of_arrays(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileError, match="a regular file is expected"):
            read_array(tmp_path / f"{name}{suffix}")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".bin", ".safetensors", ".pt"])
def test_a_full_disk_is_told(tmp_path: Path, suffix: str) -> None:
    if suffix == ".pt":
        pytest.importorskip("torch")
    (tmp_path / f"x{suffix}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_array(tmp_path / f"x{suffix}", np.zeros(1 << 16))
