"""What the page is told: the operators, the answer to a call with its checks, code and values, and the verdict on two files."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import DTYPES, FLOAT, DType
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.products import PRODUCTS, Product, find_product, use_product
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Format
from openaclnn.core.version import __version__
from openaclnn.engines.dispatch import use_engine
from openaclnn.explorer.chinese import answered, vocabulary
from openaclnn.operators import find_operator, grouped, registry
from openaclnn.testing.build import Answer, Built, answer_of, build, descriptors, is_automatic
from openaclnn.testing.calls import run_through
from openaclnn.testing.cases.case import Case, TensorSpec
from openaclnn.testing.extras import MissingLibraryError, tensor_fields, value_of
from openaclnn.testing.figures import LEVELS, STANDARDS, Array, Rules
from openaclnn.testing.files import RAW, Source, TooLargeError, read_together
from openaclnn.testing.programs import program_of, sample_values
from openaclnn.testing.verdicts import Comparison, errors_at, judge, map_of, yardstick_of


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is not served; the page shows the sentence beside the field that it is about."""

    def __init__(
        self, status: int, sentence: str, parameter: str = "", field: str = "", allow: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.allow = allow  # the methods that are served
        self.told: dict[str, Any] = {"error": sentence, "chinese": answered(sentence)}
        if parameter:
            self.told |= {"parameter": parameter, "field": field}


SMALL = 4096
"""Elements, of all tensors together, up to which values are computed and shown."""

_LEFT_OUT = "left out"
"""What stands for a tensor that the plain call would make."""

_LARGEST = (1 << 63) - 1
_TEXT = 200  # characters of a number or a name


class _Asked(NamedTuple):
    """A call of the page; tensors that the plain call would make are not among those of the case."""

    case: Case
    product: Product
    seed: int


def read_call(held: Any) -> _Asked:
    """The call that a request describes; Refused where it describes none."""
    if not isinstance(held, dict) or not isinstance(held.get("arguments", {}), dict):
        raise Refused(400, "a call is expected: operator, product and arguments")
    try:
        operator = find_operator(str(held.get("operator", "")))
        product = find_product(str(held.get("product", PRODUCTS[0].tag)))
    except (KeyError, ValueError) as error:
        raise Refused(400, str(error.args[0])) from None
    seed = held.get("seed", 0)
    if type(seed) is not int or not 0 <= seed <= _LARGEST:
        raise Refused(400, "a seed is a whole number, 0 or more")
    arguments = held.get("arguments", {})
    unknown = sorted(arguments.keys() - {p.name for p in operator.parameters})
    if unknown:
        raise Refused(400, f"{operator.name} has no parameter {unknown[0][:_TEXT]!r}")
    tensors: dict[str, TensorSpec | None] = {}
    numbers: dict[str, Any] = {}
    for parameter in operator.parameters:
        if parameter.is_tensor:
            value = arguments.get(parameter.name, _LEFT_OUT if is_automatic(parameter) else None)  # fmt: skip
            if value != _LEFT_OUT:
                tensors[parameter.name] = None if value is None else _tensor(parameter, value)
            elif not is_automatic(parameter):
                raise Refused(400, f"{parameter.name} cannot be left out", parameter.name, "mode")
        else:
            default = None if parameter.default is REQUIRED else parameter.default
            numbers[parameter.name] = _number(parameter, arguments.get(parameter.name, default))
    return _Asked(Case(operator.name, operator.name, "", 0, tensors, numbers), product, seed)


def _tensor(parameter: Parameter, held: Any) -> TensorSpec:
    name = parameter.name
    if not isinstance(held, dict):
        raise Refused(400, f"{name}: a tensor has dtype and shape", name, "mode")
    filled = {field: value for field, value in held.items() if value not in (None, "", [])}
    field = "mode"
    try:
        fields = tensor_fields(filled)
        field = "shape" if fields["strides"] is None else "strides"
        spec = TensorSpec(**fields)
        field = "values"
        if "values" not in filled:
            return spec
        return replace(spec, values=_numbers_of(filled["values"], spec.shape, spec.dtype))
    except (ValueError, OverflowError) as error:
        raise Refused(400, f"{name}: {error}", name, getattr(error, "field", field)) from None


def _numbers_of(written: Any, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    words = written if isinstance(written, list) else [written]
    if isinstance(written, str):  # between commas, spaces or brackets
        words = written.translate(str.maketrans("()[]{},;", " " * 8)).split()
    count = math.prod(shape)
    if len(words) != count:
        raise ValueError(f"{len(words)} values for the {count} elements of shape {shape}")
    read: Any = complex if dtype.kind == "complex" else float if dtype.kind == "floating" else int
    try:
        numbers = [read(word) for word in words]
        if dtype.kind == "bool" and not set(numbers) <= {0, 1}:
            raise ValueError
        with np.errstate(over="ignore"):
            return np.array(numbers, dtype.numpy).reshape(shape)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"numbers of {dtype.name} are expected") from None


def _number(parameter: Parameter, value: Any) -> Any:
    """A number, a truth, a name or null, from JSON or from text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, str) or len(value) > _TEXT:
        raise Refused(400, f"{parameter.name}: a number or a name is expected", parameter.name)
    read = value_of(value)
    return value.strip() if parameter.kind is Kind.CSTRING and read is not None else read


_SAFE = 1 << 53  # whole numbers up to here are JavaScript's too


def answer_call(asked: _Asked) -> dict[str, Any]:
    """Everything that the page shows of a call."""
    case = asked.case
    values = descriptors(case.tensors) | dict(case.attributes)
    answer = answer_of(case.operator, values, asked.product)
    built, why = _built(asked, answer)
    shown = None
    if built is not None:
        shown, why = _values(asked, built, answer.computed)
    told = answer.as_dict()
    return told | {
        "chinese": answered(*(told.get(part, "") for part in ("expected", "got", "fix")), why),
        "checks": _checks(answer),
        "outputs": [
            {"name": name, "dtype": tensor.dtype.name, "shape": tensor.shape}
            for name, tensor in answer.outputs.items()
            if name in answer.computed
        ],
        "code": {language: _code(asked, answer, built, language) for language in ("c++", "c", "python")},
        "values": shown,
        "no_values": why,
    }  # fmt: skip


def _checks(answer: Answer) -> list[dict[str, Any]]:
    """All of the operator's checks: passed, the broken one, and those that were not reached."""
    states = ["passed" if each.violation is None else "broken" for each in answer.outcomes]
    states += ["not reached"] * (len(answer.operator.checks) - len(states))
    return [
        {"row": check.number, "rule": check.rule, "status": int(check.status), "state": state}
        for check, state in zip(answer.operator.checks, states, strict=True)
    ]


def _built(asked: _Asked, answer: Answer) -> tuple[Built | None, str]:
    """The data of a small sound call, or why there are none."""
    if answer.error is not None:
        return None, "A refused call computes nothing."
    # Of all storages together, and of the views, which may be larger.
    specs = [spec for spec in asked.case.tensors.values() if spec is not None]
    read = sum(max(spec.elements, math.prod(spec.shape)) for spec in specs)
    elements = max(read, sum(math.prod(each.shape) for each in answer.outputs.values()))
    if elements > SMALL:
        return None, f"Values are shown up to {SMALL:,} elements; this call has {elements:,}."
    try:
        return build(asked.case, asked.seed, asked.product), ""
    except AclnnError as error:  # sound on this product alone
        return None, str(error)


def _values(
    asked: _Asked, built: Built, computed: frozenset[str]
) -> tuple[dict[str, Any] | None, str]:
    """What it read and wrote: by NumPy, which compiles nothing, so that the first call is as quick as the next."""
    pairs = list(zip(built.operator.parameters, built.values, strict=True))
    read = {p.name: np.array(t.owner) for p, t in pairs if p.is_read and t is not None}
    with use_engine("numpy"), use_product(asked.product.tag), np.errstate(all="ignore"):
        status, told = run_through("plain", built)
    if status:
        return None, told
    written = {p.name: tensor.owner for p, tensor in pairs if p.name in computed}
    return {"inputs": _shown(read), "outputs": _shown(written)}, ""


def _shown(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    return [
        {"name": name, "dtype": array.dtype.name, "shape": array.shape,
         "values": [_plain(each) for each in array.reshape(-1).tolist()]}
        for name, array in arrays.items()
    ]  # fmt: skip


def _plain(value: Any) -> Any:
    """A number as JavaScript has it; what it lacks as text."""
    if isinstance(value, int):
        return int(value) if abs(value) <= _SAFE else str(value)
    return str(value) if isinstance(value, complex) else float(value)


def _code(asked: _Asked, answer: Answer, built: Built | None, language: str) -> dict[str, str]:
    """The program of this very call, with the drawn values where there are some."""
    operator, tensors = asked.case.operator, asked.case.tensors
    values: dict[str, Any] = {**tensors, **asked.case.attributes}
    if built is not None:
        for parameter, tensor in zip(operator.parameters, built.values, strict=True):
            spec = values.get(parameter.name)
            if isinstance(spec, TensorSpec) and parameter.is_read:
                values[parameter.name] = replace(spec, values=tensor.owner)
    written = [p.name for p in operator.parameters if p.kind is Kind.OUTPUT]
    allocated = frozenset(name for name in written if name not in values)
    first = next((spec for spec in tensors.values() if spec is not None), None)
    for name in allocated:  # of a refused call, something of the first tensor's kind
        like = answer.outputs.get(name) or first or TensorSpec((1,), FLOAT)
        values[name] = TensorSpec(like.shape, like.dtype)
    try:
        text = program_of(
            operator, values, language, asked.product, allocated, answer.computed or None
        )
        return {"text": text}
    except ValueError as error:
        return {"why": str(error)}


@functools.cache
def declared() -> dict[str, Any]:
    """Everything at once: the page asks for it when it is opened. It takes 40 ms to be put together."""
    return {
        "version": __version__,
        "operators": [_operator(each) | {"family": family} for family, members in grouped().items() for each in members],
        "products": [{"tag": p.tag, "title": p.title} for p in PRODUCTS],
        "dtypes": [each.name for each in DTYPES if each.numpy_name],
        "formats": [each.name.removeprefix("ACL_FORMAT_") for each in Format if each.name.startswith("ACL_FORMAT_")],
        "standards": [each for each in STANDARDS if each != "cross_check"],
        "levels": LEVELS,
        "raw": RAW,
        "small": SMALL,
        "chinese": vocabulary(registry()),
    }  # fmt: skip


def _operator(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "python": operator.python_name,
        "summary": operator.summary,
        "formula": operator.formula,
        "prototypes": operator.prototypes(),
        "products": [p.tag for p in PRODUCTS if operator.supported_on(p)],
        "parameters": [_parameter(each) for each in operator.parameters],
        "samples": [
            {"title": each.title, "arguments": _arguments(operator, each)}
            for each in operator.samples
        ],
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "kind": "tensor" if parameter.is_tensor else parameter.kind.name.lower(),
        "type": parameter.declaration.removesuffix(parameter.name).strip(),
        "text": parameter.text,
        "shape": parameter.shape,
        "dtypes": [each.name for each in parameter.dtypes],
        "optional": parameter.optional,
        "choices": parameter.choices,
        "written": parameter.kind is Kind.OUTPUT,
        "read": parameter.is_read,
        "left_out": parameter.is_tensor and is_automatic(parameter),
    }


def _arguments(operator: Operator, sample: Sample) -> dict[str, Any]:
    """A sample as the page would send it."""
    values = sample_values(operator, sample)
    return {p.name: _argument(values.get(p.name, _LEFT_OUT)) for p in operator.parameters}


def _argument(value: Any) -> Any:
    if isinstance(value, TensorSpec):
        numbers = value.values.reshape(-1).tolist()
        return {"dtype": value.dtype.name, "shape": "x".join(map(str, value.shape)), "values": ", ".join(f"{n:.9g}" for n in numbers)}  # fmt: skip
    if isinstance(value, float):
        return f"{value:.17g}" if math.isfinite(value) else str(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


KINDS = (".npy", ".npz", ".safetensors", *RAW)
"""The files that are taken, by the ends of their names; none is a pickle."""

UNPACKED = 256 << 20
"""Bytes that an array of a packed file may have."""

_POINTS = 1500
_CELLS = 48
_KEPT = 10


def verdict_of(
    files: Sequence[Path], standard: str = STANDARDS[0], dtype: str | None = None
) -> dict[str, Any]:
    """The verdict on two files, and its picture as numbers; Refused where they cannot be compared."""
    try:
        rules = Rules(standard)
        if standard == "cross_check":
            raise ValueError("cross_check needs a third party's output: openaclnn compare has it")
        one, other = read_together([Source(path) for path in files], dtype, UNPACKED)
        verdict = judge(one, other, None, rules, dtype, _KEPT)
    except KeyError as error:
        raise Refused(400, str(error.args[0])) from None
    except (ValueError, MissingLibraryError) as error:
        sentence = str(error)
        for path in files:
            sentence = sentence.replace(str(path), path.name)
        raise Refused(413 if isinstance(error, TooLargeError) else 400, sentence) from None
    except (RecursionError, MemoryError):
        raise Refused(400, "the files are not what their names say") from None
    return verdict.as_dict() | {
        "chinese": answered(*verdict.reasons),
        "text": str(verdict),
        "picture": _picture(verdict, one, other, rules),
    }


def _picture(verdict: Comparison, actual: Array, golden: Array, rules: Rules) -> dict[str, Any] | None:  # fmt: skip
    if actual.shape != golden.shape or not actual.size:
        return None
    pair = (verdict, actual, golden, rules)
    errors, seen = errors_at(*pair, _POINTS), map_of(*pair, _CELLS)
    stick = yardstick_of(verdict, rules)
    allowed: list[list[float]] = []
    if errors.size.size and not stick.exact:
        ends = np.geomspace(errors.size.min(), errors.size.max() * (1 + 1e-9), 32)
        allowed = np.stack([ends, stick.allowed(ends)], axis=1).tolist()
    points = np.stack([errors.size, errors.error], axis=1)
    share = seen.share
    return {
        "good": points[~errors.bad].tolist(),
        "bad": points[errors.bad].tolist(),
        "allowed": [pair for pair in allowed if all(map(math.isfinite, pair))],
        "map": [[None if math.isnan(each) else round(each, 4) for each in row] for row in share.tolist()],
        "rows": seen.rows,
        "columns": seen.columns,
        "folded": len(actual.shape) < 2,
    }  # fmt: skip
