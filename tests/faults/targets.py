"""What the fuzzer reads with: every reader of files that others wrote, and programs of calls."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from faults.fuzz import Target, shared_folder
from faults.programs import WORDS, run_program
from faults.surface import Surface
from openaclnn.capi.build import Installation
from openaclnn.runtime import AclFailure, config
from openaclnn.testing import read_cases
from openaclnn.testing.drawing import Recipe
from openaclnn.testing.extras import MissingLibraryError
from openaclnn.testing.files import FileError, read_array, split_name, write_array
from openaclnn.testing.manifest import MANIFEST, expected_of, read_manifest, write_cases

__all__ = ["all_targets", "c_functions"]

REFUSED = (FileError, MissingLibraryError)
READERS = ("testing/", "core/dtypes")
KERNEL = {
    "testcase_name": "case", "op_name": "l1_loss_grad", "input_shapes": "((4, 6), (4, 6), (4, 6))", "input_dtypes": "('float32',)",
    "input_formats": "('ND',)", "output_shapes": "((4, 6),)", "output_dtypes": "('float32',)", "attributes": "{'reduction': 'sum'}",
    "input_data_ranges": "((-1, 1),)", "precision_tolerances": "((0.001, 0.001),)", "absolute_precision": "1.00E-08", "is_enabled": "TRUE",
    "soc_series": "Ascend910B", "manual_input_binaries": "()", "manual_golden_binaries": "[]",
}  # fmt: skip
PHASES = {
    "testcase_name": "case", "api_name": "aclnnSmoothL1LossBackward", "tensor_view_shapes": "((4, 6), (4, 6), (4, 6), (4, 6))",
    "tensor_dtypes": "('float32',)", "attributes": "{'reduction': 0, 'beta': 1.0}", "output_tensor_indexes": "(3,)",
    "input_data_ranges": "((-1, 1), (-2, 2), (-2, 2))", "manual_tensor_binaries": "()", "tensor_view_strides": "", "tensor_view_offsets": "",
}  # fmt: skip


def all_targets() -> list[Target]:
    """In a folder that ends with the process."""
    place = Path(_kept_folder())
    array = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    targets = []
    for suffix in (".npy", ".npz", ".safetensors", ".pt"):
        write_array(place / f"seed{suffix}", array)
        seed = (place / f"seed{suffix}").read_bytes()
        words = (
            b"'descr': '<f4'",
            b"'shape': (",
            b"'fortran_order': True",
            b"F32",
            b"BF16",
            b"data_offsets",
            b"__metadata__",
        )
        targets.append(
            Target(
                suffix, [seed], _reader(place / f"x{suffix}", read_array), REFUSED, READERS, words
            )
        )
    targets.append(
        Target(
            "names",
            [b"x.bin:float16:2x3", b"x.npz:a", b"x.bin:float32"],
            lambda data: _named(place, data),
            REFUSED,
            READERS,
        )
    )
    tables = [_table(KERNEL), _table(PHASES), _table(KERNEL | PHASES)]
    words = tuple(
        text.encode() for row in (KERNEL, PHASES) for pair in row.items() for text in pair if text
    )
    targets.append(
        Target(".csv", tables, _reader(place / "x.csv", _all_cases), REFUSED, READERS, words)
    )
    targets.append(
        Target(
            ".xlsx",
            [_sheet(place, KERNEL), _sheet(place, PHASES)],
            _reader(place / "x.xlsx", _all_cases),
            REFUSED,
            READERS,
            words,
        )
    )
    tensor = {
        "name": "gradLoss",
        "type": "tensor",
        "dtype": "fp32",
        "shape": [8],
        "range_values": [-1, 1],
    }
    inputs = [
        tensor,
        tensor | {"name": "logProb", "shape": [8, 5]},
        tensor | {"name": "target", "shape": [8], "dtype": "int64"},
    ]
    inputs += [{"name": "reduction", "type": "attr", "dtype": "string", "range_values": "none"}]
    case = {
        "id": 7,
        "name": "one",
        "aclnn_name": "aclnnCrossEntropyLossGrad",
        "inputs": inputs,
        "standard": "default",
    }
    words = (
        b"aclnn_name",
        b"tensor",
        b"attr",
        b"scalar",
        b"tensors",
        b"nd",
        b"uniform",
        b"mean",
        b"std",
        b"bf16",
        b"fp16",
        b"int32",
        b"bool",
    )
    targets.append(
        Target(
            ".json",
            [json.dumps([case]).encode()],
            _reader(place / "x.json", _all_cases),
            REFUSED,
            READERS,
            words,
        )
    )
    folder = place / "golden"
    write_cases(
        Recipe("elu", shape=(2, 3), special=("nan",)),
        folder,
    )
    manifest = (folder / MANIFEST).read_bytes()
    words = (
        b"recipe",
        b"formats",
        b"cases",
        b"files",
        b"sha256",
        b"golden.npy",
        b"../x",
        b"npy",
        b"bin",
    )
    targets.append(
        Target(
            "manifest", [manifest], _reader(folder / MANIFEST, _manifest), REFUSED, READERS, words
        )
    )
    settings = [
        json.dumps({"openaclnn": {"device": "cpu", "product": "a2"}}).encode(),
        b"{}",
        b'{"dump": {"dump_path": "/tmp"}}',
    ]
    targets.append(
        Target(
            "aclInit's file",
            settings,
            _reader(place / "acl.json", config.load),
            (AclFailure,),
            ("runtime/config",),
            (b"device", b"product", b"openaclnn"),
        )
    )
    targets.append(
        Target(
            "programs",
            [bytes(range(200)), bytes(range(0, 250, 7)) * 4, WORDS],
            run_program,
            (),
            ("runtime/", "calls/", "aclnn", "core/checks"),
        )
    )
    return targets


def c_functions(installation: Installation, folder: Path) -> Target:
    """Programs that call what libraries export."""
    surface, rng = Surface(installation, folder), np.random.default_rng(3)
    seeds = [bytes(range(256)) * 2, *(rng.bytes(2048) for _ in range(4))]
    traced = ("runtime/", "calls/", "capi/", "<acl")
    return Target("C functions", seeds, surface.run, (), traced, edges=surface.edges)


_folders: list[Any] = []


def _kept_folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="fuzz-", dir=shared_folder())
    _folders.append(folder)
    return folder.name


def _reader(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def target(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return target


def _all_cases(path: Path) -> list[Any]:
    return list(read_cases(path))


def _named(place: Path, data: bytes) -> object:
    (place / "x.bin").write_bytes(data[:12])
    source = split_name(f"{place}/{data.decode('latin-1')}")
    return read_array(source)


def _manifest(path: Path) -> object:
    """What is a manifest tells what its folder has."""
    held = read_manifest(path)
    with contextlib.suppress(ValueError):
        Recipe.from_dict(held["recipe"])
    return expected_of(path.parent)


def _table(row: dict[str, str]) -> bytes:
    text = io.StringIO()
    lines = csv.DictWriter(text, list(row))
    lines.writeheader()
    lines.writerow(row)
    return text.getvalue().encode()


def _sheet(place: Path, row: dict[str, str]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(list(row))
    book.active.append(list(row.values()))
    book.save(place / "seed.xlsx")
    return (place / "seed.xlsx").read_bytes()
