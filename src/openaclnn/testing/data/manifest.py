"""Golden files: a folder for each case, and a manifest from which the same bytes are made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.tensor import Scalar
from openaclnn.core.version import __version__
from openaclnn.operators import find_operator
from openaclnn.testing.data.goldens import by_output, golden
from openaclnn.testing.data.recipe import Recipe
from openaclnn.testing.files.arrays import write_array
from openaclnn.testing.files.sources import FileError

__all__ = ["FORMATS", "MANIFEST", "remake", "write_cases", "write_one"]

MANIFEST = "manifest.json"
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
    place = folder / MANIFEST
    if place.exists() and not force:
        raise FileError(f"{place} is there already; --force writes over it")
    cases = []
    for name, arguments in recipe:
        cases.append(
            {"name": name, **write_one(folder / name, recipe.operator, arguments, formats)}
        )
        done(1)
    manifest = {
        "openaclnn": __version__,
        "numpy": np.__version__,
        "formats": list(formats),
        "recipe": recipe.as_dict(),
        "cases": cases,
    }
    place.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


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
    try:
        held = json.loads(manifest.read_text(encoding="utf-8"))
        assert {"recipe", "formats", "cases"} <= held.keys()
    except OSError as error:
        raise FileError(f"{manifest}: {error.strerror}") from None
    except (ValueError, AssertionError, AttributeError):
        raise FileError(f"{manifest}: not a manifest of golden files") from None
    return dict(held)
