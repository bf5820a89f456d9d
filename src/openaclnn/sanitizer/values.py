"""The rules on products and on values.

A product refuses calls that succeed here, or computes them otherwise. What it does is declared with each operator: its checks and its plan depend on the product,
and its discrepancies say what the product is known to do against its document.

Values: class indices out of range, NaN and infinity that an operator makes of finite numbers, a total weight of zero. They are looked at by the stream, right
behind the kernel, since nobody else knows when they are there. What is found is told at the program's next call, or at its end.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

import numpy as np

from openaclnn.core.call import Call as Bound, bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.products import Product, current_product, find_product
from openaclnn.core.status import AclnnError, status_name
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import choose_engine
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.operators.losses import distance_plan
from openaclnn.runtime import AclFailure, Stream, current_stream
from openaclnn.runtime.device import ALIGNMENT, device_named, host
from openaclnn.sanitizer.events import Call, Handler, Rules
from openaclnn.sanitizer.findings import Finding
from openaclnn.sanitizer.session import queue_look
from openaclnn.sanitizer.shadow import Work, snapshot, spans_of, values, work_of


def asked_for(product: str) -> Product | None:
    """The product that a program is checked for; None: the one in force."""
    return find_product(product) if product else None


class ProductRules(Rules):
    """The calls of phase one, as another product sees them."""

    def __init__(self, product: str = "") -> None:
        super().__init__()
        self._product = asked_for(product)

    def _first_phase(self, call: Call) -> Iterator[None]:
        yield
        product = self._product or current_product()
        if call.status != 0 or product.is_default:
            return
        operator = call.operator
        arguments = [call.arguments[parameter.name] for parameter in operator.parameters]
        try:
            theirs = bind_arguments(operator, arguments, product)
            ours = bind_arguments(operator, arguments, current_product())
        except AclnnError:  # descriptors that the program destroyed meanwhile
            return
        refusal = operator.first_violation(theirs)
        if refusal is not None:
            status = f"{refusal.status} {status_name(refusal.status)}"
            message = f"{product.title} expects {refusal.expected}, got {refusal.got} [{status}]"
            self.report(Finding("product-refuses", call, refusal.parameter, message))
            return
        for argument, message in differences(operator, ours, theirs, product):
            self.report(Finding("product-differs", call, argument, message))

    HANDLERS: ClassVar[dict[str, Handler]] = {"phase 1": _first_phase}


def differences(
    operator: Operator, ours: Bound, theirs: Bound, product: Product
) -> list[tuple[str, str]]:
    """What a product computes otherwise: the parameter, and how."""
    told = []
    here, there = operator.plan(ours), operator.plan(theirs)
    computed = _named(here.outputs) - _named(there.outputs)
    read = _named(here.inputs) - _named(there.inputs)
    seen = operator.seen_by_reference(theirs).keys() - operator.seen_by_reference(ours).keys()
    ignored = {each.name for each in operator.parameters if each.python_name in seen}
    for parameter in operator.parameters:
        if parameter.name in computed:
            told.append((parameter.name, f"{product.title} does not write it"))
        elif parameter.name in read | ignored:
            told.append((parameter.name, f"{product.title} accepts it without effect"))
    numbers = {n: (here.numbers[n], there.numbers.get(n)) for n in here.numbers}
    changed = [f"{n} {b} instead of {a}" for n, (a, b) in numbers.items() if a != b and a == a]
    if (changed or here.kernel != there.kernel) and not told:
        told.append(("", f"{product.title} computes with {', '.join(changed) or there.kernel}"))
    for each in operator.discrepancies:
        # Of those about ignored targets, who sees the targets tells.
        if product.tag in each.products and not each.ignored_targets and each.applies(theirs):
            told.append((each.parameter, f"{product.title} {each.text}"))
    return told


def _named(operands: Iterable[Operand]) -> set[str]:
    return {each.parameter for each in operands}


# Values.


_EXIT_SECONDS = 5.0
"""How long the end waits for work that nobody synchronised."""
_BLOCK = 1 << 18
"""Elements that are looked at together."""

# The bits of positive infinity: what is not finite lies above, as an integer, for either sign.
_INFINITY = {"FLOAT16": 0x7C00, "BFLOAT16": 0x7F80, "FLOAT": 0x7F800000, "DOUBLE": 0x7FF << 52}


class _Look:
    """What a stream is to look at behind a kernel."""

    def __init__(self, call: Call, work: Work, stream: Stream) -> None:
        self.call, self.work, self.stream = call, work, stream
        self.tensors = {name: snapshot(tensor) for name, tensor in work.tensors.items()}
        self.finite = True  # the inputs that the outputs replace
        self.done = threading.Event()

    @property
    def replaced(self) -> list[str]:
        """The inputs of which nothing is left behind the kernel."""
        outputs = [spans_of(self.tensors[name]) for name in self.work.writes]
        inputs = {name: spans_of(self.tensors[name]) for name in self.work.reads}
        return [name for name, read in inputs.items() if any(read & spans for spans in outputs)]


class ValueRules(Rules):
    """Values before and behind each kernel."""

    def __init__(self, product: str = "") -> None:
        super().__init__()
        self._product = asked_for(product)
        self._looks: list[_Look] = []
        self._told: SimpleQueue[Finding] = SimpleQueue()

    def before(self, call: Call) -> None:
        self._flush()
        super().before(call)

    def after(self, call: Call) -> None:
        super().after(call)
        self._flush()

    def _second_phase(self, call: Call) -> Iterator[None]:
        work = work_of(call.arguments.get("executor"))
        if work is None or work.operator is not call.operator or not work.tensors:
            return
        try:
            stream = current_stream(call.arguments.get("stream"))
        except AclFailure:
            return
        look = _Look(call, work, stream)
        if any(tensor.raw and tensor.owner is None for tensor in look.tensors.values()):
            return  # memory that is not there: the call is refused
        if replaced := look.replaced:
            queue_look(stream, lambda: self._look_before(look, replaced), self.report)
        yield
        if call.status == 0 and queue_look(stream, lambda: self._look_behind(look), self.report):
            self._looks = [each for each in self._looks if not each.done.is_set()]
            self._looks.append(look)

    HANDLERS: ClassVar[dict[str, Handler]] = {"phase 2": _second_phase}

    def at_exit(self) -> None:
        deadline = time.monotonic() + _EXIT_SECONDS
        for look in self._looks:
            if look.stream.alive:
                look.done.wait(max(deadline - time.monotonic(), 0))
        self._flush()

    def _flush(self) -> None:
        with suppress(Empty):
            while True:
                self.report(self._told.get_nowait())

    def _look_before(self, look: _Look, replaced: list[str]) -> None:
        look.finite = all(all_finite(look.tensors[name]) for name in replaced)

    def _look_behind(self, look: _Look) -> None:
        try:
            for rule, argument, message in self._faults(look):
                self._told.put(Finding(rule, look.call, argument, message))
        finally:
            look.done.set()

    def _faults(self, look: _Look) -> Iterator[tuple[str, str, str]]:
        plan, tensors = look.work.plan, look.tensors
        explained = False
        if plan.targets >= 0:
            name = plan.inputs[plan.targets].parameter
            target = values(tensors[name]).astype(np.int64)
            ignored = plan.numbers.get("ignore_index")
            counted = counted_targets(plan, target)
            stray = ~counted if ignored is None else ~counted & (target != ignored)
            if stray.any():
                place = _first(stray)
                also = "" if ignored is None else f" or {ignored}, which is ignored"
                yield (
                    "target-out-of-range", name,
                    f"{target[place]} at {_shown(place)}, where classes are 0 to {plan.classes - 1}{also}; "
                    f"{int(stray.sum())} of {target.size} targets out of range",
                )  # fmt: skip
            yield from self._discrepancies(look.work, target == ignored)
            if plan.reduction == "mean" or plan.numbers.get("mean"):
                total, weight = _total_weight(plan, tensors, target, counted)
                if total == 0:
                    explained = True
                    yield (
                        "zero-total-weight", weight,
                        f"the mean divides by a total weight of 0 ({int(counted.sum())} of {target.size} targets count)",
                    )  # fmt: skip
        if explained or not look.finite or not plan.inputs:
            return
        numbers = [each for each in plan.numbers.values() if isinstance(each, float)]
        if not all(map(math.isfinite, numbers)):
            return
        born = [name for name in look.work.writes if not all_finite(tensors[name])]
        kept = set(look.work.reads) - set(look.replaced)
        if born and all(all_finite(tensors[name]) for name in kept):
            for name in born:
                array = values(tensors[name])
                bad = ~np.isfinite(array.astype(np.float64))
                place = _first(bad)
                yield (
                    "nonfinite-born", name,
                    f"{float(array[place])} at {_shown(place)} from finite inputs, the first of {int(bad.sum())} in {array.size} elements",
                )  # fmt: skip

    def _discrepancies(self, work: Work, ignored: Any) -> Iterator[tuple[str, str, str]]:
        product = self._product or current_product()
        for each in work.operator.discrepancies:
            if each.ignored_targets and product.tag in each.products and np.any(ignored):
                if each.applies(work.bound):
                    yield "product-differs", each.parameter, f"{product.title} {each.text}"


def counted_targets(plan: Plan, target: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which targets are classes, and not ignored."""
    counted: np.ndarray[Any, Any] = (target >= 0) & (target < plan.classes)
    ignored = plan.numbers.get("ignore_index")
    return counted if ignored is None else counted & (target != ignored)


def _total_weight(
    plan: Plan, tensors: Mapping[str, Tensor], target: np.ndarray[Any, Any], counted: np.ndarray[Any, Any]
) -> tuple[float, str]:  # fmt: skip
    """What a mean divides by, and the argument that it comes from."""
    if plan.numbers.get("total_weight_given"):
        return float(values(tensors["totalWeight"]).reshape(-1)[0]), "totalWeight"
    weights = [each.parameter for each in plan.inputs if each.role == "classes"]
    if not weights:
        return float(counted.sum()), plan.inputs[plan.targets].parameter
    factors = values(tensors[weights[0]]).reshape(-1).astype(np.float64)
    return float(factors[target[counted]].sum()), weights[0]


def all_finite(tensor: Tensor) -> bool:
    """Whether no element is NaN or infinite."""
    limit = _INFINITY.get(tensor.dtype.name)
    if limit is None or tensor.empty:
        return True
    if tensor.device != host.name:
        with suppress(AclnnError):  # no engine there has the type
            return finite_in_place(tensor)
    array, size = values(tensor), tensor.dtype.itemsize
    if not array.flags.c_contiguous:
        return bool(np.isfinite(array.astype(np.float32) if size == 2 else array).all())
    signed, unsigned = array.reshape(-1).view(f"i{size}"), array.reshape(-1).view(f"u{size}")
    negative = limit | 1 << (8 * size - 1)

    def is_finite(block: slice) -> bool:
        return bool(signed[block].max() < limit and unsigned[block].max() < negative)

    blocks = blocks_of(signed.size, 1, _BLOCK)
    return all(map_in_order(is_finite, blocks) if len(blocks) > 8 else map(is_finite, blocks))


def finite_in_place(tensor: Tensor) -> bool:
    """The same, by a kernel where the values are, since copies to the host take a hundred times as long: x - x is 0 for a number and NaN for
    anything else, and so is the sum of all."""
    device = device_named(tensor.device)
    address, owner = device.allocate(ALIGNMENT)
    total = Tensor((), tensor.dtype, base=address, owner=owner, device=tensor.device)
    run = choose_engine(distance_plan(tensor, tensor, total), tensor.device).prepare()
    run([tensor.address, tensor.address, address], 0)
    device.drain(0)
    return bool(values(total) == 0)


def _first(where: np.ndarray[Any, Any]) -> tuple[int, ...]:
    place = np.unravel_index(int(np.argmax(where.reshape(-1))), where.shape)
    return tuple(int(index) for index in place)


def _shown(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]" if place else "its only element"
