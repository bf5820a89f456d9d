"""Golden files: a folder for each case with a manifest from which the same bytes are made again, and what such a folder expects of a
device: which outputs, of which dtype and shape, in files of which names.

Folders are written as a whole: whoever looks, and whenever the process is ended, finds the old or the new.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.interface import Parameter, snake_case
from openaclnn.core.tensor import Scalar
from openaclnn.core.version import __version__
from openaclnn.core.writing import HIDDEN, beside, temporary_folder, write_text
from openaclnn.operators import find_operator
from openaclnn.testing.drawing import Recipe
from openaclnn.testing.extras import shape_of
from openaclnn.testing.figures import Array
from openaclnn.testing.files import RAW, FileError, Source, raw_type, read_json, write_array
from openaclnn.testing.goldens import by_output, golden

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE


@contextmanager
def adding_to(folder: Path, last: str) -> Iterator[Path]:
    """A folder to fill, whose entries are moved below `folder` when the block ends, the one named `last` as the last."""
    there = folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _told_of(folder), temporary_folder(folder / last) as part:
            yield part
            for name in sorted(os.listdir(part), key=lambda name: (name == last, name)):
                os.rename(part / name, folder / name)
    except BaseException:
        if not there:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


@contextmanager
def replacing_folder(folder: Path, ours: Collection[str]) -> Iterator[Path]:
    """A folder to fill that takes the place of `folder`, all at once, when the block ends.

    There may be none yet. What the old one holds beside `ours` (files, relative to it) is kept, in the new one. The old folder goes last: where
    the process is killed before, it stays beside the new one under a name of `temporary_folder`.
    """
    place = Path(os.path.realpath(folder))
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with _told_of(folder), temporary_folder(place) as part:
            yield part
            os.rename(part, place)
        return
    if Path.cwd().is_relative_to(place):
        raise FileError(f"{folder}: the current folder cannot be replaced as a whole; call this from outside it")  # fmt: skip
    with _told_of(folder), temporary_folder(place) as part:
        yield part
        _keep(place, part, ours)
        shutil.copymode(place, part)
        _exchange(part, place)
        _keep(part, place, ours)  # what has come since


@contextmanager
def _told_of(folder: Path) -> Iterator[None]:
    """Errors name the folder, not what stands in its place meanwhile."""
    try:
        yield
    except OSError as error:
        if HIDDEN not in f"{error.filename} {error.filename2}":
            raise
        raise FileError(f"{folder}: it cannot be written as a whole: {error.strerror}") from error


def _keep(old: Path, new: Path, ours: Collection[str]) -> None:
    """Give the new folder what is not ours of the old one: the same files, under a second name each."""
    for place, folders, files in os.walk(old, onerror=_fail):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        inside = os.path.relpath(place, old)
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            path = os.path.normpath(os.path.join(inside, name))
            if path in ours or os.path.lexists(new / path):
                continue
            (new / inside).mkdir(parents=True, exist_ok=True)
            try:
                os.link(old / path, new / path, follow_symlinks=False)
            except OSError:  # not on every disk
                shutil.copy2(old / path, new / path, follow_symlinks=False)
        if not folders and not files:
            (new / inside).mkdir(parents=True, exist_ok=True)


def _fail(error: OSError) -> None:
    """A folder that cannot be looked into may hold what must be kept."""
    raise error


def _exchange(one: Path, other: Path) -> None:
    """Let two folders have each other's names: in one step where the system has it, else in three."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    if rename is not None and not rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):  # fmt: skip
        return
    aside = beside(str(other))
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except BaseException:
        os.rename(aside, other)
        raise
    os.rename(aside, one)


# Golden files.

MANIFEST = "manifest.json"
_CASE = "case.json"
"""What `cases --golden` says of a case, in its folder."""

FORMATS = ("npy", "bin")
_EXACT = "_float64"  # behind the stems of golden values before they were rounded


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
    written = (
        replacing_folder(folder, _golden_files(folder)) if taken else adding_to(folder, MANIFEST)
    )
    with written as part:
        cases = []
        for name, arguments in recipe:
            written_files = _write_one(part / name, recipe.operator, arguments, formats)
            cases.append({"name": name, **written_files})
            done(1)
        manifest = {
            "openaclnn": __version__, "numpy": np.__version__, "formats": list(formats), "recipe": recipe.as_dict(), "cases": cases,
        }  # fmt: skip
        write_text(part / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest


def _golden_files(folder: Path) -> set[str]:
    """The files of a folder that its manifest says are golden files."""
    try:
        return {MANIFEST, *_files_of(read_manifest(folder / MANIFEST))}
    except FileError:
        return set()


def _files_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The entries of all cases' files, by their names below the manifest's folder."""
    cases = manifest["cases"]
    return {f"{case['name']}/{name}": entry for case in cases for name, entry in case["files"].items()}  # fmt: skip


def write_case(
    folder: Path,
    operator: str,
    arguments: dict[str, Any],
    about: dict[str, Any],
    counted: Mapping[str, Any] | None = None,
) -> None:
    """Write one case that says itself what it is, as a whole; `counted` as for `_write_one`."""
    try:
        held = _read_json(folder / _CASE)
    except FileError:  # the first of that name
        held = {}
    ours = {_CASE, *held["files"]} if _is_case(held) else set()
    with replacing_folder(folder, ours) as part:
        about = {**about, **_write_one(part, operator, arguments, FORMATS, counted)}
        write_text(part / _CASE, json.dumps(about, indent=1) + "\n")


def _write_one(
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
    declared = find_operator(operator)
    goldens = golden(declared, **{**arguments, **(counted or {})})
    exact, target = (by_output(declared, each) for each in goldens)
    passed = {n: value for n, value in arguments.items() if n != "out" and value is not None}
    arrays = {name: value for name, value in passed.items() if isinstance(value, np.ndarray)}
    attributes = {
        name: value.value.item() if isinstance(value, Scalar) else value
        for name, value in passed.items()
        if name not in arrays
    }
    for name in exact:
        stem = _stem(declared, declared[name])
        arrays |= {stem: target[name], f"{stem}{_EXACT}": exact[name]}
    files = {}
    for name, array in arrays.items():
        for kind in formats:
            path = folder / f"{name}.{kind}"
            write_array(path, array)
            files[path.name] = _entry(array)
    return {"attributes": attributes, "files": files}


def _stem(operator: Operator, output: Parameter) -> str:
    """What golden files of an output are called."""
    return "golden" if operator.result_type is None else f"golden_{output.field}"


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
    recipe = Recipe.from_dict(held["recipe"])
    before = _files_of(held)
    after = _files_of(write_cases(recipe, folder, held["formats"], force, done))
    return sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))


def read_manifest(manifest: Path) -> dict[str, Any]:
    """A manifest's content; FileError where it is none."""
    held = _read_json(manifest)
    known = held.keys() >= {"recipe", "formats", "cases"} and isinstance(held["recipe"], dict)
    cases = held["cases"] if known else None
    sound = isinstance(cases, list) and all(_is_case(each) and _is_name(each.get("name")) for each in cases)  # fmt: skip
    formats = held.get("formats")
    if not sound or not isinstance(formats, list) or not all(each in FORMATS for each in formats):
        raise FileError(f"{manifest}: not a manifest of golden files")
    return held


def _read_json(path: Path) -> dict[str, Any]:
    """A dictionary from a file; FileError where there is none."""
    held = read_json(path)
    if not isinstance(held, dict):
        raise FileError(f"{path}: not a manifest of golden files")
    return held


def _is_case(held: Any) -> bool:
    """Whether it is what `_write_one` returns: no name in it leads elsewhere."""
    files = held.get("files") if isinstance(held, dict) else None
    return isinstance(files, dict) and all(
        _is_name(name) and isinstance(entry, dict) for name, entry in files.items()
    )


def _is_name(text: Any) -> bool:
    """Whether it names an entry of a folder."""
    return isinstance(text, str) and text not in ("", ".", "..") and not set(text) & set("/\\\0")


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
        told = (_self_described(place.parent) for place in sorted(folder.glob(f"*/{_CASE}")))
        cases = [case for case in told if case]
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
    described = (each for each in _listed(place.parent) if each.folder == place)
    return _self_described(folder) or next(described, None)


def _self_described(folder: Path) -> _Case | None:
    """A case that says itself what it is, as those of `cases --golden` do."""
    try:
        held = _read_json(folder / _CASE)
    except FileError:  # none, or something else's
        return None
    return _case(folder / _CASE, folder, held.get("operator"), held) if _is_case(held) else None


def _listed(folder: Path) -> list[_Case]:
    """The cases of a manifest, none where there is none."""
    try:
        held = read_manifest(folder / MANIFEST)
    except FileError:
        return []
    operator, place = held["recipe"].get("operator"), folder / MANIFEST
    cases = (_case(place, folder / each["name"], operator, each) for each in held["cases"])
    return [case for case in cases if case]


def _case(place: Path, folder: Path, operator: Any, held: dict[str, Any]) -> _Case | None:
    try:
        return _Case(place, folder, find_operator(operator), held["files"])
    except (KeyError, AttributeError, TypeError):
        return None


def _outputs(root: Path, case: _Case) -> Iterator[Expected]:
    """The outputs of a case, each with its golden values as they were before they were rounded."""
    inside = "" if case.folder.absolute() == root.absolute() else case.folder.name
    for output in case.operator.outputs:
        stem = _stem(case.operator, output)
        short = "out" if case.operator.result_type is None else output.field
        for kind in FORMATS:
            rounded, exact = f"{stem}.{kind}", f"{stem}{_EXACT}.{kind}"
            if rounded in case.files and exact in case.files:
                name = f"{inside}/{stem}" if inside else stem
                stems = (stem, short, output.name, snake_case(output.name))
                yield Expected(name, inside, stems, _source(case, rounded), _source(case, exact))
                break


def _source(case: _Case, name: str) -> Source:
    entry = case.files[name]
    try:
        shape = shape_of(list(entry["shape"]))
        return Source(case.folder / name, dtype=raw_type(entry["dtype"]), shape=shape)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise FileError(f"{case.place}: {name} has no dtype and shape: {error}") from None
