"""Arrays in files come back as they were, and what cannot be read says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openaclnn.testing.files.arrays import create, read_array, write_array
from openaclnn.testing.files.sources import FileError, split_name

TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.float64)


def named(path: Path, array: Any) -> str:
    shape = "x".join(map(str, array.shape))
    return f"{path}:{array.dtype}:{shape}" if path.suffix == ".bin" else str(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".bin", ".safetensors", ".pt"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
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
    mapped = create(path, array.shape, array.dtype)
    assert mapped is not None
    mapped[...] = array
    mapped.base.flush() if suffix == ".npy" and dtype is ml_dtypes.bfloat16 else mapped.flush()
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
