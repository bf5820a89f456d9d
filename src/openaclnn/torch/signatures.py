"""The arguments of PyTorch's operators, as its dispatcher hands them to kernels, and which of ours each of them is."""

from __future__ import annotations

from typing import Any, NamedTuple

from openaclnn.core.declare import RESULT_CHECKED, SHARES_CHECKED
from openaclnn.core.interface import REQUIRED
from openaclnn.torch.private import schema_of

TENSOR, OPTIONAL, WEIGHT, SCALAR, FLOAT, INTEGER, AXIS, BOOL, REDUCTION, UNSET, DTYPE = (
    "TOWSFIABRND"
)
"""Kinds of arguments. OPTIONAL: a tensor that may be missing. WEIGHT: another, for which we take ones then: a weight for each class of the tensor
two before it. SCALAR: a number of any kind, which PyTorch's stable C interface lacks. AXIS: that of the first tensor's classes. Two that ours
have no word for: UNSET, a truth value that has to be false, and DTYPE, which has to be the first tensor's."""

MOST_CLASSES = 1 << 15
"""Of more classes PyTorch's softmax is faster on a GPU."""


class Signature(NamedTuple):
    """The arguments of an operator of PyTorch's, and what the fast path takes of them."""

    kinds: str  # of all arguments
    order: tuple[int, ...]  # those that the fast path takes, arrays first
    arrays: int  # how many of these are arrays
    results: int  # 0: it writes over its first argument, and returns that
    checked: bool
    of_shares: bool

    @property
    def words(self) -> tuple[int, int, int]:
        """Arrays that are read, outputs and options, as the fast path takes them."""
        return self.arrays, max(self.results, 1), len(self.order) - self.arrays

    @property
    def is_stable(self) -> bool:
        """Whether PyTorch's stable C interface has all of these kinds."""
        return SCALAR not in self.kinds


_KINDS = {"number": SCALAR, "float": FLOAT, "int": INTEGER, "bool": BOOL}


def signature_of(kernel: Any, overload: Any, in_place: bool) -> Signature:
    """Tensors are ours in their order, options by their names. TypeError where an operator of ours is declared to be one of other arguments."""
    tensors = [kernel.parameters[place] for place in kernel.tensors]
    options = {p.python_name: p for p in kernel.parameters if not p.is_tensor}
    kinds, arrays, places = "", list[int](), dict[str, int]()
    schema = schema_of(overload)
    for place, argument in enumerate(schema.arguments):
        kind, option = str(argument.real_type), options.get(argument.name)
        if kind.endswith(("Tensor", "Tensor]")):
            parameter = tensors[len(arrays)]
            arrays.append(place)
            kinds += (
                TENSOR
                if kind == "Tensor"
                else WEIGHT
                if parameter.default is REQUIRED
                else OPTIONAL
            )
        elif option is not None:
            places[argument.name] = place
            kinds += REDUCTION if option.choices else AXIS if option.axis else _KINDS.get(kind, "?")
        else:
            kinds += {"bool": UNSET, "ScalarType": DTYPE}.get(kind, "?")
    if "?" in kinds or len(arrays) != len(tensors) or places.keys() != options.keys():
        raise TypeError(f"{kernel.operator.name}: aten: expected other arguments than those of {schema}")  # fmt: skip
    order = *arrays, *[places[name] for name in options]
    results = 0 if in_place else len(schema.returns)
    traits = kernel.operator.aten_traits
    return Signature(kinds, order, len(arrays), results, RESULT_CHECKED in traits, SHARES_CHECKED in traits)  # fmt: skip
