"""Gated linear units and their gradients: one half of a tensor along an axis, times a function of the other half.

The halves are separate operands, which kernels visit in place. A declaration says for each value and each result of its formula which tensor, or
which half of a tensor, it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, TILING, Check
from openaclnn.core.declare import Gradient
from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Half, Plan, empty_plan, halves_plan
from openaclnn.core.tensor import Tensor
from openaclnn.engines.formulas import activations as formulas
from openaclnn.operators import activations, rules
from openaclnn.operators.activations import NOT_910, Activation
from openaclnn.operators.gelu import erf, erf_backward, tanh, tanh_backward
from openaclnn.operators.sigmoids import sigmoid
from openaclnn.operators.workloads.words import KernelForm

FIRST, SECOND = False, True
Part = str | tuple[str, bool]
"""A tensor, or the first or second half of it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gated(Activation):
    """An operator over halves of tensors along `dim`. With `activateLeft`, first and second half are exchanged."""

    parts: tuple[Part, ...]  # the formula's values, in its order
    written: tuple[Part, ...]  # its results, in its order

    @functools.cached_property
    def read(self) -> tuple[str, ...]:
        return self.input_names

    @property
    def halved(self) -> str:
        """The name of the tensor whose halves are read."""
        return next(part[0] for part in self.parts if isinstance(part, tuple))

    def shape_of(
        self, name: str, shape: tuple[int, ...], options: Mapping[str, Any]
    ) -> tuple[int, ...]:
        sizes = list(shape or (1,))
        if any(part[0] == name for part in (*self.parts, *self.written) if isinstance(part, tuple)):
            sizes[options.get("dim", -1)] *= 2
        return tuple(sizes)


def _half_shape(call: Call) -> tuple[int, ...]:
    tensor, axis = call.tensor(Gated.of(call).halved), call.axis("dim")
    assert axis is not None
    return (*tensor.shape[:axis], tensor.shape[axis] // 2, *tensor.shape[axis + 1 :])


def _result(call: Call) -> Any:
    operator = Gated.of(call)
    tensor, halved = call.tensor(operator.halved), _half_shape(call)
    shapes = [halved if name in operator.written else tensor.shape for name in operator.output_names]  # fmt: skip
    outputs = tuple((shape, tensor.dtype) for shape in shapes)
    return outputs if len(outputs) > 1 else outputs[0]


def _plan(call: Call) -> Plan:
    operator, values = Gated.of(call), call.values
    first = operator.output.name, values[operator.output.name]
    if first[1].empty:
        return empty_plan(operator.name, first)
    axis, turned = call.axis("dim"), values.get("activateLeft", False)
    assert axis is not None

    def operand(part: Part) -> tuple[str, Tensor | Half]:
        if isinstance(part, str):
            return part, values[part]
        return part[0], Half(values[part[0]], axis, part[1] != turned)

    numbers = {"tanh": values["approximate"] == 1} if operator.kernel.switches else {}
    return halves_plan(
        operator.name, operator.kernel.name, values[operator.halved].dtype, [*map(operand, operator.parts)],
        [*map(operand, operator.written)], numbers, fixed=call.product.tag == IN_BLOCKS,
    )  # fmt: skip


# Rules.

IN_BLOCKS = "310p"
"""The product whose kernels cut halves into blocks, so that each size needs the check of `in_blocks`."""


def _of_halved(rule: str, fault: Callable[[Call, Tensor], checks.Fault], status: int = INVALID) -> rules.Rule:  # fmt: skip
    """A rule about the tensor with the halves; `rule` has {} in place of its name."""

    def of(operator: Activation, row: str) -> list[Check]:
        name = _halved_name(operator)
        return [checks.of_tensors(row, rule.format(name), (name,), fault, status)]

    return of


def _halved_name(operator: Activation) -> str:
    assert isinstance(operator, Gated)
    return operator.halved


has_axes = _of_halved("at least 1 dimension: {}", lambda call, tensor: None if tensor.rank else ("1 to 8 dimensions", "0"))  # fmt: skip


def axis(operator: Activation, row: str) -> list[Check]:
    return [checks.axis_in_range(row, "dim", _halved_name(operator))]


def even(status: int = INVALID) -> rules.Rule:
    """The axis has an even size; a tensor without axes counts as an axis of 1."""

    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        along, shape = call.axis("dim"), tensor.shape or (1,)
        assert along is not None
        return None if shape[along] % 2 == 0 else (f"an even size along axis {along}", f"shape {shape}")  # fmt: skip

    return _of_halved("the size of {} along dim is even", fault, status)


def in_blocks(operator: Activation, row: str) -> list[Check]:
    """The axis has an even size; on `IN_BLOCKS`, its halves have a multiple of 64 bytes."""

    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        size = _half_shape(call)[call.axis("dim") or 0] * tensor.dtype.itemsize
        fits = call.product.tag != IN_BLOCKS or size % 64 == 0
        return (
            None if fits else (f"halves of a multiple of 64 bytes on {IN_BLOCKS}", f"{size} bytes")
        )

    cut = _of_halved(
        f"on {IN_BLOCKS}, halves of {{}} along dim are multiples of 64 bytes", fault, TILING
    )
    return [*even(TILING)(operator, row), *cut(operator, row)]


def half(*names: str, status: int = INVALID) -> rules.Rule:
    """Tensors have the shape of one half."""

    def of(operator: Activation, row: str) -> list[Check]:
        text = f"of {_halved_name(operator)}, with half its size along dim"
        return [
            checks.shape_is(row, name, lambda call: (_half_shape(call),), text, status)
            for name in names
        ]

    return of


def same_rank(operator: Activation, row: str) -> list[Check]:
    """The gradient has as many dimensions as the tensor with the halves."""
    name, whole = operator.tensors[0].name, _halved_name(operator)

    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        other = call.tensor(whole).rank
        return None if tensor.rank == other else (f"{other} dimensions, as {whole}", str(tensor.rank))  # fmt: skip

    check = checks.of_tensors(row, f"{name} has the rank of {whole}", (name,), fault, TILING)
    return [check._replace(names=(name, whole))]


def _unknown(call: Call) -> bool:
    return call["approximate"] not in ((1,) if call.product.tag == "310p" else (0, 1))


approximation = rules.value("approximate", "0 or 1, on 310p only 1", _unknown)


# Declarations.

HALF = "half of it along dim"


def declare(
    name: str, *texts: Any, whole: str, parts: tuple[Part, ...], options: tuple[Parameter, ...] = (), output: str = "out", **more: Any
) -> Gated:  # fmt: skip
    """As `activations.declare`; `whole` is the tensor with the halves, and all others have the shape of one, or if they are made of two, its."""
    written = more.setdefault("written", ((output, FIRST), (output, SECOND)))
    forward = not isinstance(written[0], tuple)
    inputs = more.setdefault("inputs", {whole: "what has two halves along dim"})
    halves = [each for each in inputs if each != whole] + ([output] if forward else [])
    shapes = {whole: "1 to 8 dimensions"} | dict.fromkeys(halves, f"same as {whole}, {HALF}")
    if not forward:
        shapes[output] = f"same as {whole}"
    variants = {"last axis": {}} | more.pop("variants", {}) | {"first axis": {"dim": 0}}
    operator = activations.declare(
        name, *texts, options=(Parameter("dim", Kind.INT64, "the axis that the halves lie along, -rank to rank - 1", default=-1, axis=whole), *options),
        output=output, shapes=shapes, kind=Gated, parts=parts, plan=_plan, result=_result, variants=variants, **more,
    )  # fmt: skip
    assert isinstance(operator, Gated)
    return operator


ROW, BACK = (FLOAT, [1.0, -2.0, 3.0, 0.5]), (FLOAT, [1.0, 2.0])
"""What samples compute with: two halves, and a gradient of the result."""


def _split(x: Any, dim: int) -> Any:
    return np.split(x, 2, axis=dim)


def _glu(x: Any, dim: int) -> Any:
    a, b = _split(x, dim)
    return a * sigmoid(b)


def _glu_backward(g: Any, x: Any, dim: int) -> Any:
    """a - a s is a (1 - s), and no number where a is infinite."""
    a, b = _split(x, dim)
    by_first = g * sigmoid(b)
    rest = np.where(np.isinf(a), np.nan, a * sigmoid(-b))
    return np.concatenate([by_first, by_first * rest], dim)


declare(
    "Glu", "The first half of x along an axis, times the logistic function of the second.",
    "out = a / (1 + exp(-b)), a = first half of self along dim, b = second half", formulas.glu, _glu, [0.9525741268224333, -1.2449186624037092],
    (rules.not_null(), rules.dtypes("self", "out", more=(DOUBLE,)), rules.rank("self", "out"), has_axes, axis, even(), half("out")),
    whole="self", parts=(("self", FIRST), ("self", SECOND)), written=("out",), accepts=(*FLOATS, DOUBLE), const_output=True,
    arguments={"self": ROW}, kernels=(KernelForm("glu", {"self": "self"}),), peer="glu", gradient=Gradient("aclnnGluBackward"),
)  # fmt: skip

declare(
    "GluBackward", "Gradient of the gated linear unit with respect to its input.",
    "out = [gradOut * s, gradOut * s * (a - a * s)], s = 1 / (1 + exp(-b)), a = first half of self along dim, b = second half", formulas.glu_backward,
    _glu_backward, [0.9525741268224333, 1.2449186624037092, 0.04517665973091213, -0.940014848806378],
    (
        rules.not_null("self", "gradOut", "out"), rules.dtypes("self", more=(DOUBLE,)), rules.same_dtype("self", "gradOut", "out"),
        rules.rank("self", "out", "gradOut"), has_axes, axis, even(), half("gradOut"), rules.same_shape("self", "out"),
    ),
    whole="self", parts=("gradOut", ("self", FIRST), ("self", SECOND)),
    inputs={"gradOut": "gradient of the output", "self": "the forward's input"}, accepts=(*FLOATS, DOUBLE), const_output=True,
    arguments={"grad_out": BACK, "self": ROW}, kernels=(KernelForm("glu_grad", {"grad_out": "gradOut", "self": "self"}),),
    peer="glu_backward",
)  # fmt: skip


def _swi_glu(x: Any, dim: int) -> Any:
    a, b = _split(x, dim)
    return a * sigmoid(a) * b


def _swi_glu_grad(g: Any, x: Any, dim: int) -> Any:
    a, b = _split(x, dim)
    s = sigmoid(a)
    return np.concatenate([g * s * (1 + a * sigmoid(-a)) * b, g * s * a], dim)


def _torch_swi_glu(torch: Any, x: Any, dim: int) -> Any:
    a, b = x.chunk(2, dim)
    return torch.nn.functional.silu(a) * b


def _torch_swi_glu_grad(torch: Any, g: Any, x: Any, dim: int) -> Any:
    a, b = x.chunk(2, dim)
    return torch.cat([torch.ops.aten.silu_backward(g * b, a), g * torch.nn.functional.silu(a)], dim)


declare(
    "SwiGlu", "SiLU of the first half of x along an axis, times the second.",
    "out = a / (1 + exp(-a)) * b, a = first half of x along dim, b = second half", formulas.swi_glu, _swi_glu, [2.193175735890015, -0.11920292202211756],
    rules.generated("x", axis, in_blocks, half("out", status=TILING)), whole="x", parts=(("x", FIRST), ("x", SECOND)), written=("out",),
    families=NOT_910, generated=True, const_output=True, arguments={"x": ROW}, kernels=(KernelForm("swi_glu", {"x": "x"}),),
    peer=_torch_swi_glu, gradient=Gradient("aclnnSwiGluGrad"),
)  # fmt: skip

declare(
    "SwiGluGrad", "Gradient of SwiGLU with respect to its input.",
    "out = [yGrad * s * (1 + a * (1 - s)) * b, yGrad * s * a], s = 1 / (1 + exp(-a)), a = first half of x along dim, b = second half",
    formulas.swi_glu_grad, _swi_glu_grad, [2.78301153561446, -0.09078424878489548, 0.7310585786300049, -0.47681168808847024],
    rules.generated("x", same_rank, axis, in_blocks, half("yGrad", status=TILING), rules.same_shape("x", "out", status=TILING)), whole="x",
    parts=("yGrad", ("x", FIRST), ("x", SECOND)), inputs={"yGrad": "gradient of the output", "x": "the forward's input"},
    families=NOT_910, generated=True, const_output=True, arguments={"y_grad": BACK, "x": ROW},
    kernels=(KernelForm("swi_glu_grad", {"y_grad": "yGrad", "x": "x"}),), peer=_torch_swi_glu_grad,
)  # fmt: skip


def _ge_glu(x: Any, dim: int, approximate: int, left: bool = False) -> Any:
    a, b = _split(x, dim)
    u, v = (a, b) if left else (b, a)
    gelu = tanh(u) if approximate == 1 else erf(u)
    return v * gelu, gelu


def _ge_glu_backward(
    g: Any, x: Any, gelu: Any, dim: int, approximate: int, left: bool = False
) -> Any:
    a, b = _split(x, dim)
    u, v = (a, b) if left else (b, a)
    by_u = (tanh_backward if approximate == 1 else erf_backward)(g * v, u)
    return np.concatenate([by_u, g * gelu] if left else [g * gelu, by_u], dim)


def _torch_ge_glu(torch: Any, x: Any, dim: int, approximate: int, left: bool = False) -> Any:
    a, b = x.chunk(2, dim)
    u, v = (a, b) if left else (b, a)
    gelu = torch.nn.functional.gelu(u, approximate="tanh" if approximate == 1 else "none")
    return v * gelu, gelu


def _torch_ge_glu_backward(
    torch: Any, g: Any, x: Any, gelu: Any, dim: int, approximate: int, left: bool = False
) -> Any:
    a, b = x.chunk(2, dim)
    u, v = (a, b) if left else (b, a)
    how = "tanh" if approximate == 1 else "none"
    by_u = torch.ops.aten.gelu_backward(g * v, u, approximate=how)
    return torch.cat([by_u, g * gelu] if left else [g * gelu, by_u], dim)


APPROXIMATE = Parameter("approximate", Kind.INT64, "0: GELU by the error function; 1: by the hyperbolic tangent", default=1)  # fmt: skip
LEFT = Parameter("activateLeft", Kind.BOOL, "whether GELU is taken of the first half", default=False)  # fmt: skip
ACTIVATED = Parameter("outGelu", Kind.OUTPUT, "GELU of one half", f"same as self, {HALF}", FLOATS)
BACKWARD = {
    "gradOutput": "gradient of the output", "self": "the forward's input", "gelu": "the forward's second output",
}  # fmt: skip
FORWARD_RULES = (
    rules.not_null(), rules.dtypes("self", "out", "outGelu"), rules.same_dtype(), rules.rank("self", "out", "outGelu"), axis, even(),
    half("out", "outGelu"),
    approximation,
)  # fmt: skip
BACKWARD_RULES = (
    rules.not_null(), rules.dtypes("gradOutput"), rules.same_dtype(), rules.same_shape("gradOutput", "gelu"), rules.same_shape("self", "gradInput"), axis, even(),
    half("gradOutput"),
    approximation,
)  # fmt: skip


def declare_ge_glu(
    name: str, halves: str, options: tuple[Parameter, ...], expected: tuple[list[float], list[float]], gradient: list[float],
    kernels: tuple[tuple[KernelForm, ...], tuple[KernelForm, ...]] = ((), ()), variants: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> None:  # fmt: skip
    """GeGLU and its gradient; GELU is taken of the second half, unless an option turns them."""
    common: dict[str, Any] = {
        "whole": "self", "families": NOT_910, "options": options, "variants": {"erf": {"approximate": 0}, **(variants or {})},
    }  # fmt: skip
    gelu = f"{halves}\nGELU(u) = u * Phi(u), Phi of the normal distribution; for approximate 1 as aclnnGelu"
    arguments = {"self": ROW, "approximate": 0, **arguments}
    declare(
        name, "One half of x along an axis, times GELU of the other, which is the second output.",
        f"out = v * GELU(u), outGelu = GELU(u), {gelu}", formulas.ge_glu, _ge_glu, expected, FORWARD_RULES,
        parts=(("self", SECOND), ("self", FIRST)), written=("out", "outGelu"), after=(ACTIVATED,), kernels=kernels[0], arguments=arguments,
        header_name="geglu", peer=_torch_ge_glu, gradient=Gradient(f"aclnn{name}Backward", {"gelu": "outGelu"}), **common,
    )  # fmt: skip
    declare(
        f"{name}Backward", "Gradient of GeGLU with respect to its input, with the forward's second output.",
        f"gradInput: gradOutput * gelu in place of v, gradOutput * v * GELU'(u) in place of u, {gelu}", formulas.ge_glu_backward, _ge_glu_backward,
        gradient, BACKWARD_RULES, inputs=BACKWARD, parts=("gradOutput", ("self", SECOND), ("self", FIRST), "gelu"), output="gradInput",
        written=(("gradInput", SECOND), ("gradInput", FIRST)), kernels=kernels[1], header_name="geglu_backward",
        peer=_torch_ge_glu_backward, arguments={"grad_output": BACK, "gelu": (FLOAT, expected[1]), **arguments}, **common,
    )  # fmt: skip


declare_ge_glu(
    "GeGlu", "v = first half of self along dim, u = second half", (APPROXIMATE,),
    ([2.99595030590511, -0.6914624612740131], [2.99595030590511, 0.34573123063700656]),
    [2.99595030590511, 0.6914624612740131, 1.011945647204184, -3.4699804986246514],
)  # fmt: skip
declare_ge_glu(
    "GeGluV3", "v = first half of self along dim, u = second half, with activateLeft vice versa", (APPROXIMATE, LEFT),
    ([2.524034238205629, -0.02275013194817921], [0.8413447460685429, -0.04550026389635842]),
    [3.2499464117630588, -0.0852318010781969, 0.8413447460685429, -0.09100052779271683],
    (
        (KernelForm("ge_glu_v2", {"x": "self"}),),
        (KernelForm("ge_glu_grad_v2", {"dy": "gradOutput", "x": "self", "gelu": "gelu"}),),
    ),
    {"left": {"activate_left": True}}, activate_left=True,
)  # fmt: skip
