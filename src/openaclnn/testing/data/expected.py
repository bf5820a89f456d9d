"""What a folder of golden files expects of a device: which outputs, of which dtype and shape, in files of which names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from openaclnn.core.declare import Operator
from openaclnn.core.interface import snake_case
from openaclnn.operators import find_operator
from openaclnn.testing.data.manifest import (
    CASE,
    FORMATS,
    MANIFEST,
    is_case,
    read_json,
    read_manifest,
)
from openaclnn.testing.files.sources import RAW, FileError, Source, raw_type, shape_of

__all__ = ["Expected", "described", "expected_of"]

_EXACT = "_float64"


@dataclass(frozen=True)
class Expected:
    """An output of a case, in the device's folder and in ours."""

    name: str
    folder: str  # of the case, below both
    stems: tuple[str, ...]  # what a device may call its file
    output: Source  # dtype and shape, for a raw file
    golden: Source


class _Case(NamedTuple):
    """What a manifest says of a case."""

    place: Path  # the manifest
    folder: Path
    operator: Operator
    files: dict[str, dict[str, Any]]


def expected_of(folder: Path) -> list[Expected] | None:
    """The outputs that `golden` or `cases --golden` wrote into a folder, or of the case that it is; None where nothing
    there says so."""
    alone = _case_of(folder)
    cases = [alone] if alone else _listed(folder)
    if not cases:
        cases = [
            found for place in sorted(folder.glob(f"*/{CASE}")) if (found := _told_in(place.parent))
        ]
    return [each for case in cases for each in _outputs(folder, case)] or None


def described(source: Source) -> Source:
    """A raw file beside a manifest that names it: with its dtype and shape."""
    path = source.path
    if source.dtype is not None or path.suffix.lower() not in RAW:
        return source
    case = _case_of(path.parent)
    return _source(case, path.name) if case and path.name in case.files else source


def _case_of(folder: Path) -> _Case | None:
    """The case whose folder it is."""
    place = folder.absolute()
    own = (each for each in _listed(place.parent) if each.folder == place)
    return _told_in(folder) or next(own, None)


def _told_in(folder: Path) -> _Case | None:
    """A case that says itself what it is, as those of `cases --golden` do."""
    try:
        held = read_json(folder / CASE)
    except FileError:  # none, or something else's
        return None
    return _case(folder / CASE, folder, held.get("operator"), held) if is_case(held) else None


def _listed(folder: Path) -> list[_Case]:
    """The cases of a manifest, none where there is none."""
    try:
        held = read_manifest(folder / MANIFEST)
    except FileError:
        return []
    operator = held["recipe"].get("operator")
    made = (
        _case(folder / MANIFEST, folder / each["name"], operator, each) for each in held["cases"]
    )
    return [each for each in made if each]


def _case(place: Path, folder: Path, operator: Any, held: dict[str, Any]) -> _Case | None:
    try:
        return _Case(place, folder, find_operator(operator), held["files"])
    except (KeyError, AttributeError, TypeError):
        return None


def _outputs(root: Path, case: _Case) -> Iterator[Expected]:
    """The outputs of a case, each with its golden values as they were before they were rounded."""
    inside = "" if case.folder.absolute() == root.absolute() else case.folder.name
    for stem, own in _names(case.operator).items():
        for kind in FORMATS:
            rounded, exact = f"{stem}.{kind}", f"{stem}{_EXACT}.{kind}"
            if rounded in case.files and exact in case.files:
                name = f"{inside}/{stem}" if inside else stem
                yield Expected(name, inside, (stem, *own), _source(case, rounded), _source(case, exact))  # fmt: skip
                break


def _names(operator: Operator) -> dict[str, tuple[str, ...]]:
    """The stems of golden files, each with the other names that its output has."""
    if operator.result_type is None:
        own = operator.output
        return {"golden": ("out", own.name, snake_case(own.name))}
    return {
        f"golden_{own.field}": (own.field, own.name, snake_case(own.name)) for own in operator.outputs
    }  # fmt: skip


def _source(case: _Case, name: str) -> Source:
    entry = case.files[name]
    try:
        shape = shape_of("x".join(str(int(size)) for size in entry["shape"]))
        return Source(case.folder / name, dtype=raw_type(entry["dtype"]), shape=shape)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{case.place}: {name} has no dtype and shape: {error}") from None
