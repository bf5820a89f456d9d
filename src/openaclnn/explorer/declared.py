"""What the page knows before any call: operators, products, dtypes, standards, from their declarations."""

from __future__ import annotations

import math
from typing import Any

from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import DTYPES
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.products import PRODUCTS
from openaclnn.core.tensor import Format
from openaclnn.core.version import __version__
from openaclnn.explorer.asked import LEFT_OUT, SMALL, may_be_left_out
from openaclnn.operators import registry
from openaclnn.testing.cases.case import TensorSpec
from openaclnn.testing.files.sources import RAW
from openaclnn.testing.judging.limits import LEVELS, STANDARDS
from openaclnn.testing.programs.examples import sample_values

__all__ = ["declared"]


def declared() -> dict[str, Any]:
    """Everything at once: the page asks for it when it is opened."""
    return {
        "version": __version__,
        "operators": [_operator(each) for each in registry()],
        "products": [{"tag": p.tag, "title": p.title} for p in PRODUCTS],
        "dtypes": [each.name for each in DTYPES if each.numpy_name],
        "formats": [each.name.removeprefix("ACL_FORMAT_") for each in Format if each.name.startswith("ACL_FORMAT_")],
        "standards": [each for each in STANDARDS if each != "cross_check"],
        "levels": LEVELS,
        "raw": RAW,
        "small": SMALL,
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
        "left_out": parameter.is_tensor and may_be_left_out(parameter),
    }


def _arguments(operator: Operator, sample: Sample) -> dict[str, Any]:
    """A sample as the page would send it."""
    values = sample_values(operator, sample)
    return {p.name: _argument(values.get(p.name, LEFT_OUT)) for p in operator.parameters}


def _argument(value: Any) -> Any:
    if isinstance(value, TensorSpec):
        numbers = value.values.reshape(-1).tolist()
        return {"dtype": value.dtype.name, "shape": "x".join(map(str, value.shape)), "values": ", ".join(f"{n:.9g}" for n in numbers)}  # fmt: skip
    if isinstance(value, float):
        return f"{value:.17g}" if math.isfinite(value) else str(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
