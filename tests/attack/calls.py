"""The attack's calls through Python: one step is one call, or the same objects once more after something changed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import threading
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import torch

import openaclnn
from attack.arrays import HONEST, Memory, Sub, as_torch, dressed
from attack.overridden import draw_overridden
from attack.scarce import Scarce
from conftest import assert_matches_oracle
from openaclnn import acl, aclnn
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.status import AclError, Status
from openaclnn.testing.goldens import planned
from openaclnn.torch import enable, served
from workloads import cases_of

Array = np.ndarray[Any, Any]
STATUSES = {int(one) for one in Status} - {0}
DOCUMENTED = STATUSES | {int(one) for one in AclError} | {0}
ODD: list[Any] = [
    "avg", "", 7, -1, -0.0, Fraction(1, 3), Decimal("0.3"), np.float16(0.5), np.array(0.5), 2**63 - 1, 2.5, None, b"mean", True, [], {}, object, np.float32(2), np.int64(1), float("nan"), 2**64,
    -(2**63) - 1, 1j, np.ones(2), "1.0", float("inf"), torch.tensor(1.0), np.bool_(True), 1e39, 10**400,
    torch.ones(2), torch.ones(1).to_sparse(),
]  # fmt: skip


class Fault(Exception):  # noqa: N818
    """What must not happen."""


class Interrupt(Exception):  # noqa: N818
    """Raised by the attack's own signal handler."""


@functools.cache
def cases(operator: Operator, dtype: DType) -> list[dict[str, Any]]:
    """The operator's own cases of a size that leaves time for many."""
    drawn = cases_of(operator, np.random.default_rng(5), dtype)
    return [
        case for case in drawn
        if all(value.size <= 700 for value in case.values() if isinstance(value, np.ndarray))
    ]  # fmt: skip


def sound(rng: np.random.Generator, operator: Operator) -> dict[str, Any]:
    """Arguments that fit each other, as plain arrays and numbers."""
    known = cases(operator, FLOATS[int(rng.integers(len(FLOATS)))])
    return known[int(rng.integers(len(known)))]


class Attack:
    """One attacker: its own random numbers, the objects of its last call, and what it counted."""

    def __init__(self, seed: int, alone: bool = True, scarce: Scarce | None = None) -> None:
        self.scarce = scarce
        self.rng = np.random.default_rng(seed)
        self.alone = alone  # no other thread: forks and signals are possible
        self.counts: Counter[str] = Counter()
        self.last: tuple[Operator, dict[str, Any], Memory] | None = None

    def step(self) -> None:
        draw = self.rng.random()
        if self.last is not None and draw < 0.35:
            self.again()
        elif self.last is not None and draw < 0.37 and self.alone:
            self.interrupted()
        elif self.last is not None and draw < 0.375 and self.alone:
            self.forked()
        elif self.last is not None and draw < 0.41 and self.alone and self.scarce:
            self.short_of_memory(self.scarce)
        elif draw < 0.45:
            self.overridden()
        elif draw < 0.57:
            self.two_phases()
        else:
            self.plain_call(*self.drawn())

    def drawn(self) -> tuple[Operator, dict[str, Any], Memory]:
        rng, memory = self.rng, Memory()
        operator = openaclnn.registry()[int(rng.integers(len(openaclnn.registry())))]
        strange = float(rng.choice([0.0, 0.0, 0.1, 0.4]))
        keywords: dict[str, Any] = {}
        for name, value in sound(rng, operator).items():
            if isinstance(value, np.ndarray):
                if (
                    "target" in name
                    and rng.random() < 0.03
                    and value.dtype.kind == "i"
                    and value.size
                ):
                    value = value.copy()
                    value.flat[0] = int(rng.choice([-1, 10**6]))
                keywords[name] = dressed(rng, value, memory, strange)
            else:
                odd = rng.random() < strange / 3
                keywords[name] = ODD[int(rng.integers(len(ODD)))] if odd else value
        if not operator.output.in_place:
            keywords["out"] = self.output(operator, keywords, memory, strange)
        return operator, keywords, memory

    def output(
        self, operator: Operator, keywords: dict[str, Any], memory: Memory, strange: float
    ) -> Any:
        rng = self.rng
        draw = rng.random()
        if draw < 0.4:
            return None
        arrays = [array for array in keywords.values() if type(array) in (np.ndarray, torch.Tensor)]
        if draw < 0.5 and arrays:  # in place, or partly so
            chosen = arrays[int(rng.integers(len(arrays)))]
            if type(chosen) is np.ndarray and chosen.ndim and rng.random() < 0.3:
                return chosen[::-1]
            return chosen
        try:
            places = planned(operator, keywords).outputs
        except openaclnn.AclnnError:
            return None if draw < 0.8 else np.empty(3, np.float32)
        outputs = tuple(self.place(*place, memory, strange) for place in places.values())
        return outputs[0] if operator.result_type is None else outputs

    def place(self, shape: tuple[int, ...], dtype: DType, memory: Memory, strange: float) -> Any:
        """Memory for one output."""
        rng = self.rng
        if rng.random() < 0.3:
            dtype = FLOATS[int(rng.integers(len(FLOATS)))]
        return dressed(rng, np.zeros(shape, dtype.numpy), memory, strange / 2)

    # What is expected of a call.

    def plain_call(self, operator: Operator, keywords: dict[str, Any], memory: Memory) -> None:
        """A call that is right, or refused, and writes nothing but its output."""
        function = getattr(openaclnn, operator.python_name)
        self.last = operator, keywords, memory
        exact: dict[str, Any] | None
        try:
            exact = operator.reference_arguments(**keywords)
            exact_error = None
        except openaclnn.AclnnError as error:
            exact, exact_error = None, error
        plan = openaclnn.explain(operator, **keywords).plan
        memory.buffers = [(buffer, buffer.copy()) for buffer, _ in memory.buffers]
        try:
            got = function(**keywords)
        except openaclnn.AclnnError as error:
            self.refused(error, operator)
            stray = error.expected.startswith("class indices")
            written = written_by(operator, keywords) if stray else []
            if memory.changed(written):
                raise Fault(f"{operator.name} refused with {error} and wrote") from error
            return
        if exact is None:
            raise Fault(f"{operator.name} was accepted, where the oracle said {exact_error}")
        if memory.changed(written_by(operator, keywords)):
            raise Fault(f"{operator.name} wrote outside its outputs")
        self.counts["right"] += 1
        assert plan is not None
        self.compare(operator, exact, got, plan)

    def compare(self, operator: Operator, exact: dict[str, Any], got: Any, plan: Any) -> None:
        written, compute = (
            {operand.parameter: operand.role for operand in plan.outputs},
            plan.compute,
        )
        several = got if operator.result_type is not None else (got,)
        results = []
        for parameter, output in zip(operator.outputs, several, strict=True):
            values = None if output is None else to_numpy(output)
            if output is not None and values is None:
                return
            # What the caller gave stays there whether it is computed or not.
            if values is not None and (parameter.name in written or not values.size):
                # One element for all may have any axes.
                alone = written.get(parameter.name) == "single"
                results.append(values.reshape(()) if alone else values)
        # Two different roundings to 16 bits have no bound in the comparison.
        if all(
            compute.itemsize == 4 or r.itemsize == 4 or compute.numpy == r.dtype for r in results
        ):
            assert_matches_oracle(operator, exact, tuple(results), compute)

    def refused(self, error: openaclnn.AclnnError, operator: Operator) -> None:
        if error.status not in STATUSES or error.operator != operator.name:
            raise Fault(f"{operator.name} refused with {error!r}")
        if not (error.parameter and error.expected and error.got):
            raise Fault(f"{operator.name} does not say what is wrong: {error!r}")
        self.counts["refused"] += 1

    # Other steps.

    def again(self) -> None:
        """The same objects, after something happened to one of them."""
        assert self.last is not None
        operator, keywords, memory = self.last
        keywords = dict(keywords)
        name = str(self.rng.choice([*keywords]))
        change(self.rng, keywords, name)
        self.counts["again"] += 1
        with torch.no_grad():
            self.plain_call(operator, keywords, memory)

    def two_phases(self) -> None:
        operator, keywords, memory = self.drawn()
        rng = self.rng
        arguments = phase_one(operator, keywords)
        memory.buffers = [(buffer, buffer.copy()) for buffer, _ in memory.buffers]
        first = getattr(aclnn, f"{operator.name}GetWorkspaceSize")
        status, _, executor = first(*arguments)
        self.status(status)
        for _ in range(int(rng.integers(0, 3))):  # what programs do in between
            change(rng, dict(enumerate(arguments)), int(rng.integers(len(arguments))))
        if rng.random() < 0.2 and executor is not None:
            self.status(aclnn.aclSetAclOpExecutorRepeatable(executor))
        for _ in range(int(rng.integers(0, 3))):
            status = getattr(aclnn, operator.name)(None, 0, executor, None)
            self.status(status)
        if rng.random() < 0.3:
            self.status(aclnn.aclDestroyAclOpExecutor(executor))
        self.status(acl.aclrtSynchronizeStream(None))
        if memory.changed(written_by(operator, keywords)):
            raise Fault(f"{operator.name} wrote outside its outputs in phase two")
        self.counts["two phases"] += 1

    def status(self, status: int) -> None:
        if status not in DOCUMENTED:
            raise Fault(f"status {status}")
        if status in (561000, 500000):
            raise Fault(f"a fault of ours: {aclnn.aclGetRecentErrMsg()}")

    def overridden(self) -> None:
        """PyTorch's own functions, which ours are in the place of from then on."""
        if not served():
            enable()
        got, known, room = draw_overridden(self.rng)
        for tensor, exact in zip(got, known, strict=True):
            if tensor.shape != exact.shape or not torch.allclose(
                tensor.double(), exact, atol=room, rtol=room, equal_nan=True
            ):
                raise Fault(f"{tensor} in PyTorch's place, {exact} by PyTorch")
        self.counts["overridden"] += 1

    def short_of_memory(self, scarce: Scarce) -> None:
        """The last call again, on the fast path alone, with too little memory for one of Python's objects: NumPy does not stand
        that everywhere."""
        assert self.last is not None
        operator, keywords, memory = self.last
        function = getattr(openaclnn, operator.python_name)
        whole = inspect.signature(function).bind(**keywords)
        whole.apply_defaults()
        road = function.__globals__["_cache"]
        arguments = *(whole.arguments[name] for name in (*road._passed, *road._options)), None
        if operator.output.in_place or road.call(*arguments) is NotImplemented:
            return
        for number in range(20):
            try:
                with scarce.at(number):
                    road.call(*arguments)
            except (MemoryError, RuntimeError, SystemError):
                self.counts["short of memory"] += 1
        self.plain_call(operator, keywords, memory)

    def interrupted(self) -> None:
        """Signals whose handler raises, while the last call is repeated."""
        assert self.last is not None
        operator, keywords, memory = self.last
        function = getattr(openaclnn, operator.python_name)

        def handler(*_: Any) -> None:
            raise Interrupt

        try:
            function(**keywords)  # what must be compiled is
        except openaclnn.AclnnError:
            return
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0007)
            for _ in range(60):
                try:
                    function(**keywords)
                except Interrupt:
                    self.counts["interrupted"] += 1
        except Interrupt:
            pass
        finally:
            while True:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.signal(signal.SIGALRM, before)
                    break
                except Interrupt:
                    continue
        self.plain_call(operator, keywords, memory)

    def forked(self) -> None:
        """A child that calls too, and ends by itself."""
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)
                inner = Attack(int(self.rng.integers(2**32)), alone=False)
                for _ in range(4):
                    inner.plain_call(*inner.drawn())
            except BaseException as error:
                print(f"in a forked child: {error!r}", flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise Fault(f"a forked child ended with {status:#x}")
        self.counts["forked"] += 1


def written_by(operator: Operator, keywords: dict[str, Any]) -> list[Any]:
    """What a call may write of what it was given."""
    out = keywords[operator.output.python_name]
    outputs = out if type(out) is tuple else (out,)
    return [output for output in outputs if output is not None]


def phase_one(operator: Operator, keywords: dict[str, Any]) -> list[Any]:
    """A plain call's arguments in C order."""
    out = keywords.get("out")
    several = out if type(out) is tuple else (out,) * len(operator.outputs)
    places = dict(zip((p.name for p in operator.outputs), several, strict=True))
    apart = {name: place for name, place in places.items() if not operator[name].in_place}
    return [
        apart[p.name] if p.name in apart else keywords.get(p.python_name, p.default)
        for p in operator.parameters
    ]


def change(rng: np.random.Generator, arguments: dict[Any, Any], name: Any) -> None:
    """Something that programs do between two calls."""
    value, draw = arguments[name], int(rng.integers(7))
    if type(value) is tuple:
        each = dict(enumerate(value))
        change(rng, each, draw % len(each))
        arguments[name] = tuple(each.values())
    elif type(value) in (torch.Tensor, torch.nn.Parameter):
        try:
            if draw == 0:
                value.untyped_storage().resize_(int(rng.integers(0, 64)))
            elif draw == 1:
                value.data = torch.ones(value.shape, dtype=value.dtype)
            elif draw == 2:
                arguments[name] = (
                    value.detach().clone().t() if value.dim() == 2 else value.detach().clone()
                )
            elif draw == 3:
                value.requires_grad_(not value.requires_grad)
            elif draw == 4:
                value.resize_(tuple(value.shape)[::-1])
        except RuntimeError:
            pass  # PyTorch does not let it be done
    elif type(value) is np.ndarray:
        if draw == 0:
            value.flags.writeable = False
        elif draw == 1 and value.dtype in [dtype.numpy for dtype in FLOATS]:
            arguments[name] = as_torch(value)
        elif draw == 2 and value.flags.c_contiguous and value.flags.owndata:
            value.shape = value.shape[::-1]
        elif draw == 3 and value.dtype.kind in "fi":
            arguments[name] = value.astype(
                rng.choice([np.float16, np.float32, ml_dtypes.bfloat16, np.int32])
            )
        elif draw == 4:
            arguments[name] = np.array(value[..., ::-1] if value.ndim else value)
        elif draw == 5:
            arguments[name] = HONEST["frozen"](rng, value)
        elif draw == 6:
            with contextlib.suppress(ValueError):  # it is not its own, or in use
                value.resize(int(rng.integers(1, 9)), refcheck=False)
    elif type(value) is float:
        arguments[name] = value * 2
    elif draw == 0 and name != "out":
        arguments[name] = ODD[int(rng.integers(len(ODD)))]


def to_numpy(got: Any) -> Array | None:
    """A result's values."""
    if type(got) in (torch.Tensor, torch.nn.Parameter):
        got = got.detach()
        return (
            got.float().numpy().astype(ml_dtypes.bfloat16)
            if got.dtype is torch.bfloat16
            else got.numpy()
        )
    return np.asarray(got) if type(got) in (np.ndarray, Sub) else None


def beside(seed: int, count: int, steps: int) -> Counter[str]:
    """Several attackers at once."""
    attackers = [Attack(seed + 7919 * number, alone=False) for number in range(count)]
    faults: list[BaseException] = []

    def work(attacker: Attack) -> None:
        try:
            for _ in range(steps):
                attacker.step()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(attacker,)) for attacker in attackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return sum((attacker.counts for attacker in attackers), Counter())
