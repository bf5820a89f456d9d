"""PyTorch is entered and read by interfaces that it promises: nothing of its memory, no symbol of C++, no list of versions."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import openaclnn
from openaclnn.cli import doctor
from openaclnn.torch import native as dispatcher

SOURCE = Path(openaclnn.__file__).parent

READING = {
    "core/interop.py": "what DLPack hands over, and memory that array interfaces describe",
    "core/products.py": "how often an object of ours is referred to",
    "core/tensor.py": "NumPy's arrays",
    "engines/machine/ending.py": "words of our own libraries",
    "engines/machine/objects.py": "NumPy's arrays",
    "pyacl.py": "memory that the caller names",
    "repeat/code/read_copy_update.py": "words of ours",
    "repeat/readers.py": "the table of DLPack's exchange interface",
}
"""Files that read memory by address, and what."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The source files."""
    files = sorted(SOURCE.rglob("*.py"))
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in files}


@functools.cache
def words_of_files() -> dict[str, frozenset[str]]:
    return {name: frozenset(words(tree)) for name, tree in trees().items()}


def files_with(word: str) -> set[str]:
    return {name for name, known in words_of_files().items() if word in known}


def words(tree: ast.AST) -> Iterator[str]:
    """Names, attributes and texts, but for comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            yield str(node.value)


def test_memory_is_read_by_address_where_it_is_known_whose_it_is() -> None:
    assert files_with("from_address") == READING.keys()


def places_inside_objects(tree: ast.AST) -> list[str]:
    """Sums with the address of an object, which are addresses inside it."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Add, ast.Sub))
        for side in (node.left, node.right)
        if isinstance(side, ast.Call) and ast.unparse(side.func) == "id"
    ]  # fmt: skip


def test_no_address_inside_an_object_is_computed() -> None:
    assert places_inside_objects(ast.parse("id(tensor) + 16")) == ["id(tensor) + 16"]
    found = {name for name, tree in trees().items() if places_inside_objects(tree)}
    assert found == {"core/tensor.py"}  # where NumPy's arrays have their data


@pytest.mark.parametrize("word", ["_cdata", "__basicsize__"])
def test_nobody_looks_for_pytorchs_objects(word: str) -> None:
    allowed = {"core/tensor.py", "engines/machine/objects.py"} if word == "__basicsize__" else set()
    assert files_with(word) <= allowed


def test_no_symbol_of_cpp_is_asked_for() -> None:
    mangled = re.compile(r"\b_Z(N|K|S|T|\d)")
    assert mangled.match("_ZN2at6native6is_negERKNS_6TensorE")
    found = words_of_files().items()
    assert not [(name, word) for name, known in found for word in known if mangled.search(word)]


def test_no_version_is_listed() -> None:
    """What PyTorch has is seen by asking for it."""
    found = {name for name in files_with("__version__") if name.startswith(("torch/", "repeat/"))}
    assert found == {"torch/refusals.py"}  # which names it in an error


class Recording:
    """A library, and the names that were asked of it."""

    def __init__(self, library: Any) -> None:
        self.library, self.names = library, set[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.library, name)  # what a release lacks is not asked for
        self.names.add(name)
        return found


def test_every_function_of_the_interface_is_declared_in_its_headers() -> None:
    known = dispatcher.stable_interface()
    assert known is not None
    recording = Recording(known.library)
    again = dispatcher.StableInterface(recording)
    again.device_kind("CPU")
    again.dtype_number("float32")
    folder = Path(torch.__path__[0]) / "include/torch/csrc"
    headers = "inductor/aoti_torch/c/shim.h", "stable/c/shim.h"
    text = "".join((folder / name).read_text() for name in headers)
    declared = {*re.findall(r"\b(\w+)\(", text)}
    assert recording.names <= declared
    assert "aoti_torch_get_current_cuda_stream" in declared


@pytest.mark.parametrize(
    ("version", "slow"), [("2.9.1+cpu", True), ("2.10.0", False), ("2.13.0+cu130", False), ("3.0", False)]
)  # fmt: skip
def test_doctor_tells_of_a_pytorch_without_the_interfaces(version: str, slow: bool) -> None:
    assert ("slow path" in doctor._told_of("torch", version)) is slow
    assert doctor._told_of("numpy", version) == version
