"""Golden files: a folder for each case, and a manifest from which the same bytes are made again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.tensor import Scalar
from openaclnn.core.version import __version__
from openaclnn.core.writing import write_text
from openaclnn.operators import find_operator
from openaclnn.testing.data.goldens import by_output, golden
from openaclnn.testing.data.recipe import Recipe
from openaclnn.testing.files.arrays import write_array
from openaclnn.testing.files.folders import adding_to, replacing_folder
from openaclnn.testing.files.sources import FileError, read_whole

__all__ = [
    "CASE", "FORMATS", "MANIFEST", "is_case", "is_name", "read_json", "read_manifest", "remake", "write_case", "write_cases",
    "write_one",
]  # fmt: skip

MANIFEST = "manifest.json"
CASE = "case.json"
"""What `cases --golden` says of a case, in its folder."""

FORMATS = ("npy", "bin")
Array = np.ndarray[Any, Any]


def write_cases(
    recipe: Recipe,
    folder: Path,
    formats: Sequence[str] = ("npy",),
    force: bool = False,
    done: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Write every case's inputs, float64 and target-dtype golden values and the manifest, which is returned."""
    taken = [name for name in (MANIFEST, *recipe.names()) if os.path.lexists(folder / name)]
    if taken and not force:
        raise FileError(f"{folder / taken[0]} is there already; --force writes over it")
    written = replacing_folder(folder, _ours(folder)) if taken else adding_to(folder, MANIFEST)
    with written as part:
        cases = []
        for name, arguments in recipe:
            cases.append(
                {"name": name, **write_one(part / name, recipe.operator, arguments, formats)}
            )
            done(1)
        manifest = {
            "openaclnn": __version__,
            "numpy": np.__version__,
            "formats": list(formats),
            "recipe": recipe.as_dict(),
            "cases": cases,
        }
        write_text(part / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest


def _ours(folder: Path) -> set[str]:
    """The files of a folder that its manifest says are golden files."""
    try:
        held = read_manifest(folder / MANIFEST)
    except FileError:
        return set()
    return {
        MANIFEST,
        *(f"{case['name']}/{name}" for case in held["cases"] for name in case["files"]),
    }


def write_case(
    folder: Path,
    operator: str,
    arguments: dict[str, Any],
    about: dict[str, Any],
    counted: Mapping[str, Any] | None = None,
) -> None:
    """Write one case that says itself what it is, as a whole; `counted` as for `write_one`."""
    try:
        held = read_json(folder / CASE)
    except FileError:  # the first of that name
        held = {}
    ours = {CASE, *held["files"]} if is_case(held) else set()
    with replacing_folder(folder, ours) as part:
        about = {**about, **write_one(part, operator, arguments, FORMATS, counted)}
        write_text(part / CASE, json.dumps(about, indent=1) + "\n")


def write_one(
    folder: Path,
    operator: str,
    arguments: dict[str, Any],
    formats: Sequence[str],
    counted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write one case; returns its attributes, and its files with dtype, shape and hash. `counted` are arguments that
    stand for others where golden values are computed.

    Golden files are `golden` and `golden_float64`; of several outputs, `golden_<name>` and `golden_<name>_float64`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = find_operator(operator)
    exact, target = (
        by_output(found, own) for own in golden(found, **{**arguments, **(counted or {})})
    )
    given = {
        name: value for name, value in arguments.items() if name != "out" and value is not None
    }
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    attributes = {name: _number(value) for name, value in given.items() if name not in arrays}
    for name in exact:
        own = "golden" if found.result_type is None else f"golden_{found[name].field}"
        arrays |= {own: target[name], f"{own}_float64": exact[name]}
    files = {}
    for name, array in arrays.items():
        for kind in formats:
            path = folder / f"{name}.{kind}"
            write_array(path, array)
            files[path.name] = _entry(array)
    return {"attributes": attributes, "files": files}


def _number(value: Any) -> Any:
    """A scalar as the number it is."""
    return value.value.item() if isinstance(value, Scalar) else value


def _entry(array: Array) -> dict[str, Any]:
    """What identifies an array, in whichever kind of file."""
    dtype = dtype_of_numpy(array.dtype)
    assert dtype is not None
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {"dtype": dtype.name, "shape": list(array.shape), "sha256": digest}


def remake(
    manifest: Path,
    folder: Path,
    force: bool = False,
    done: Callable[[int], None] = lambda count: None,
) -> list[str]:
    """Make a manifest's files again; returns the files whose bytes differ, which none should."""
    held = read_manifest(manifest)
    made = write_cases(Recipe.from_dict(held["recipe"]), folder, held["formats"], force, done)
    before = {f"{case['name']}/{n}": f for case in held["cases"] for n, f in case["files"].items()}
    after = {f"{case['name']}/{n}": f for case in made["cases"] for n, f in case["files"].items()}
    return sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))


def read_manifest(manifest: Path) -> dict[str, Any]:
    """A manifest's content; FileError where it is none."""
    held = read_json(manifest)
    known = held.keys() >= {"recipe", "formats", "cases"} and isinstance(held["recipe"], dict)
    cases = held["cases"] if known else None
    sound = isinstance(cases, list) and all(is_case(each) and is_name(each.get("name")) for each in cases)  # fmt: skip
    formats = held.get("formats")
    if not sound or not isinstance(formats, list) or not all(each in FORMATS for each in formats):
        raise FileError(f"{manifest}: not a manifest of golden files")
    return held


def read_json(path: Path) -> dict[str, Any]:
    """A dictionary from a file; FileError where there is none."""
    try:
        held = json.loads(read_whole(path))
    except FileError:
        raise
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise FileError(f"{path}: not a manifest of golden files")
    return held


def is_case(held: Any) -> bool:
    """Whether it is what `write_one` returns: no name in it leads elsewhere."""
    files = held.get("files") if isinstance(held, dict) else None
    return isinstance(files, dict) and all(
        is_name(name) and isinstance(entry, dict) for name, entry in files.items()
    )


def is_name(text: Any) -> bool:
    """Whether it names an entry of a folder."""
    return isinstance(text, str) and text not in ("", ".", "..") and not set(text) & set("/\\\0")
