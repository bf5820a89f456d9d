# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Formulas inside kernels: compiled from their own source, called with what a kernel has read. And functions made from text, whose source
Triton finds again as if it lay in a file."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import triton
import triton.language as tl

from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.formulas.language import functions_of
from openaclnn.engines.gpu.formulas.translation import DIVIDE, NUMBER, translated
from openaclnn.engines.gpu.formulas.words import INTERPRETED, TERMS, WORDS, divide

TRITON_TYPES = {FLOAT: tl.float32, FLOAT16: tl.float16, BFLOAT16: tl.bfloat16}
PRECISE_WORDS = frozenset(name for name, word in WORDS.items() if "PRECISE" in word.arg_names)


def define(text: str, scope: Mapping[str, Any]) -> Any:
    """The first of a text's functions as a `triton.jit` function; it sees the others and the scope."""
    everything = {"__name__": __name__, "tl": tl, **scope}
    first, *others = functions_of(text, everything)
    everything.update((function.__name__, triton.jit(function)) for function in others)
    return triton.jit(first)


class Kernel:
    """A kernel made from text. Triton's function is made of it when it is first compiled: Triton takes 10 ms to read one, and a process needs few of those
    that a formula has."""

    def __init__(self, text: str, scope: Mapping[str, Any]) -> None:
        self._made_of = text, scope
        head = text[: text.index("):")].lstrip().removeprefix("def ")
        self.__name__, _, parameters = head.partition("(")
        names = [parameter.partition(":")[0].strip() for parameter in parameters.split(",")]
        self.arg_names = [name for name in names if name]

    @functools.cached_property
    def function(self) -> Any:
        return define(*self._made_of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __getitem__(self, grid: Any) -> Any:
        return self.function[grid]


def listed(names: Iterable[str]) -> str:
    """Names as parameters or arguments that others follow."""
    return "".join(f"{name}, " for name in names)


def constexprs(names: Iterable[str]) -> str:
    """Names as parameters that are known when the code is made."""
    return "".join(f"{name}: tl.constexpr, " for name in names)


@functools.cache
def compiled(formula: Formula, is_term: bool = False) -> Any:
    """The formula as a function that kernels call; one whose results are added up if it is a term."""
    words = {**WORDS, **TERMS} if is_term else WORDS
    return define(
        translated(formula.function, PRECISE_WORDS), {**words, DIVIDE: divide, NUMBER: number}
    )


@triton.jit
def number(value):
    """A number of the source as a value, which may divide others."""
    return tl.full([], value, tl.float32)


class Names:
    """What a formula's kernel calls its parameters. Prefixes keep them apart from the kernel's own."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self.pointers = [f"from_{name}" for name in formula.values]
        self.numbers = [f"number_{name}" for name in formula.numbers]
        self.switches = [f"SWITCH_{name}" for name in formula.switches]
        self.results = [f"result_{number}" for number in range(formula.results)]
        self.outs = ["out", *(f"out_{number}" for number in range(1, formula.results))]

    def call(self, function: str = "formula") -> str:
        """The call of `formula`, or another function of its parameters, with the values that were read."""
        # The interpreter hands over Python's numbers, which would be computed with as such.
        arguments = [
            *(f"value_{name}" for name in self.formula.values),
            *(f"{name}=tl.full([], number_{name}, tl.float32)" for name in self.formula.numbers),
            *(f"{name}=SWITCH_{name}" for name in self.formula.switches),
            "PRECISE=PRECISE",
        ]
        return f"{function}({', '.join(arguments)})"


@triton.jit
def widen(values, COMPUTE: tl.constexpr):
    """Values as float32: first rounded to the computation type where theirs is another one."""
    if values.dtype == COMPUTE or tl.float32 == COMPUTE:
        result = values.to(tl.float32)
    else:
        result = values.to(tl.float32).to(COMPUTE).to(tl.float32)
    return result


@triton.jit
def widen_pairs(values, COMPUTE: tl.constexpr):
    """The same of many that lie side by side. Of BFLOAT16 two share a register: Triton takes the upper one out before it shifts it back, an instruction more."""
    if len(values.shape) > 0 and values.dtype == tl.bfloat16 and tl.float16 != COMPUTE and not INTERPRETED:  # fmt: skip
        result = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=f,=f,r", [values], dtype=tl.float32, is_pure=True, pack=2
        )  # fmt: skip
    else:
        result = widen(values, COMPUTE)
    return result


def precision(plan: Plan) -> tuple[Any, bool]:
    """The constexprs of a formula's kernel that say how exact it is: COMPUTE and PRECISE."""
    return TRITON_TYPES[plan.compute], plan.compute is FLOAT
