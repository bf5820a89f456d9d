"""Bytes as spans against a plain array of bytes, happens-before against the paths of the graph that a program makes, and operators of every kind
whose tensors have gaps that nobody wrote.
"""

import random
from typing import Any

import numpy as np
import pytest

import conftest
from openaclnn import acl, aclnn
from openaclnn.core.dtypes import FLOAT, FLOAT16, dtype_of_numpy
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.sanitizer import sanitize
from openaclnn.sanitizer.order import Access, Order, Point
from openaclnn.sanitizer.shadow import Block, Shadow, Spans, spans_of


def _as_bytes(spans: Spans, size: int) -> np.ndarray:
    held = np.zeros(size, bool)
    for start, stop in zip(spans.starts.tolist(), spans.stops.tolist(), strict=True):
        held[start:stop] = True
    return held


def _check_form(spans: Spans) -> None:
    assert all(start < stop for start, stop in zip(spans.starts, spans.stops, strict=True))
    assert np.all(spans.stops[:-1] < spans.starts[1:])


def test_spans_are_sets_of_bytes():
    generator, size = random.Random(1), 64
    for _ in range(300):
        held = [np.zeros(size, bool), np.zeros(size, bool)]
        sets = [Spans(), Spans()]
        for _ in range(generator.randrange(12)):
            which, start = generator.randrange(2), generator.randrange(size)
            stop = min(size, start + generator.randrange(9))
            if generator.random() < 0.3:
                sets[which] -= Spans.between(start, stop)
                held[which][start:stop] = False
            else:
                sets[which] |= Spans.between(start, stop)
                held[which][start:stop] = True
        one, other = sets
        for answer, expected in (
            (one, held[0]), (one | other, held[0] | held[1]), (one & other, held[0] & held[1]), (one - other, held[0] & ~held[1]),
        ):  # fmt: skip
            _check_form(answer)
            assert np.array_equal(_as_bytes(answer, size), expected)
            assert answer.size == expected.sum()
            assert bool(answer) == expected.any()


def test_spans_of_views_are_exact():
    generator = random.Random(2)
    for _ in range(300):
        rank = generator.randrange(5)
        shape = tuple(generator.choice((0, 1, 2, 3, 4)) for _ in range(rank))
        strides = tuple(generator.choice((-7, -3, -1, 0, 1, 2, 3, 4, 12, 30)) for _ in range(rank))
        dtype = generator.choice((FLOAT, FLOAT16))
        tensor = Tensor(shape, dtype, strides, 3, base=2000)
        expected = np.zeros(4000, bool)
        for index in np.ndindex(shape):
            place = (
                2000
                + (3 + sum(i * s for i, s in zip(index, strides, strict=True))) * dtype.itemsize
            )
            expected[place : place + dtype.itemsize] = True
        spans = spans_of(tensor)
        _check_form(spans)
        assert np.array_equal(_as_bytes(spans, 4000), expected), (shape, strides)


def test_blocks_are_found_by_every_address():
    shadow = Shadow()
    first, second = Block(64, 10, 64, "device", "one"), Block(192, 32, 64, "device", "two")
    for block in (first, second):
        shadow.allocate(block)
    assert [shadow.find(a) for a in (63, 64, 127, 128, 192, 256)] == [None, first, first, None, second, None]  # fmt: skip
    shadow.free(first, "three")
    assert shadow.find(70) is None
    assert shadow.find_freed(70) is first
    assert first.freed == "three"
    shadow.allocate(Block(96, 8, 32, "device", "four"))
    assert shadow.find_freed(70) is None


class _Graph:
    """The same program as a graph: an edge from each step to those that begin when it is done."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.host = self.step()
        self.last: dict[int, int] = {}

    def step(self, *behind: int | None) -> int:
        self.before.append({each for each in behind if each is not None})
        return len(self.before) - 1

    def on_host(self, *behind: int) -> int:
        self.host = self.step(self.host, *behind)
        return self.host

    def on_stream(self, stream: int, *behind: int) -> int:
        self.last[stream] = self.step(self.last.get(stream), self.on_host(), *behind)
        return self.last[stream]

    def is_behind(self, later: int, earlier: int) -> bool:
        seen, todo = set(), [later]
        while todo:
            step = todo.pop()
            if step == earlier:
                return True
            if step not in seen:
                seen.add(step)
                todo += self.before[step]
        return False


class _Program:
    """Random steps, in the model and in the graph; `clashing` are those that the model complains about."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.order, self.graph = Order(), _Graph()
        self.entered: list[tuple[int, Spans, bool]] = []
        self.clashing: set[int] = set()
        self.points: list[tuple[Point, int]] = []  # with the step that reaches it
        self.unrecorded: list[tuple[Point, int]] = []
        self.streams = 3

    def enter(self, step: int, access: Access) -> None:
        if self.order.enter("block", access):
            self.clashing.add(step)
        self.entered.append((step, access.spans, access.write))

    def bytes(self) -> tuple[Spans, bool]:
        start = self.random.randrange(6)
        return Spans.between(start, start + self.random.randrange(1, 5)), self.random.random() < 0.5

    def go(self) -> None:
        stream, choice = self.random.randrange(3), self.random.random()
        spans, write = self.bytes()
        if choice < 0.4:
            step = self.graph.on_stream(stream)
            self.order.run(stream, lambda now: self.enter(step, Access(now, spans, write)))
        elif choice < 0.5:
            self.enter(self.graph.on_host(), Access(self.order.host_moment(), spans, write))
        elif choice < 0.65:
            self.points.append((self.order.record(stream), self.graph.on_stream(stream)))
        elif choice < 0.8 and self.points:
            point, step = self.random.choice(self.points)
            self.graph.on_stream(stream, step)
            self.order.wait(stream, point)
        elif choice < 0.85:
            point, step = Point(), self.graph.step()
            self.graph.on_stream(stream, step)
            self.order.wait(stream, point)
            self.unrecorded.append((point, step))
        elif choice < 0.92 and self.unrecorded:
            self.record_late()
        elif not self.unrecorded:
            self.order.join(self.order.record(stream))
            self.graph.on_host(self.graph.on_stream(stream))

    def record_late(self) -> None:
        """On a stream of its own, so that no two wait for each other."""
        (point, step), stream = self.unrecorded.pop(), self.streams
        self.streams += 1
        for reached, place in self.random.sample(self.points, min(len(self.points), 2)):
            if reached.moment is not None:
                self.graph.on_stream(stream, place)
                self.order.wait(stream, reached)
        work, (spans, write) = self.graph.on_stream(stream), self.bytes()
        self.order.run(stream, lambda now: self.enter(work, Access(now, spans, write)))
        self.graph.before[step].add(self.graph.on_stream(stream))
        self.order.record(stream, point)
        if self.random.random() < 0.5:
            self.graph.on_host(self.graph.on_stream(stream))
            self.order.end(stream)


def test_clashes_are_those_without_a_path():
    clashes = 0
    for seed in range(200):
        program = _Program(seed)
        for _ in range(30):
            program.go()
            if program.unrecorded and program.random.random() < 0.2:
                program.record_late()
        while program.unrecorded:
            program.record_late()
        for place, (step, spans, write) in enumerate(program.entered):
            expected = any(
                (write or other_write)
                and spans & others
                and not program.graph.is_behind(step, other)
                for other, others, other_write in program.entered[:place]
            )
            assert expected == (step in program.clashing), (seed, place)
            clashes += expected
    assert clashes > 250


class _Calls:
    """Random calls of the runtime, and the graph of the same; `races` says whether two of them have no order."""

    SIZE = 64 * 4

    def __init__(self, seed: int) -> None:
        self.random, self.graph = random.Random(seed), _Graph()
        self.steps: list[tuple[int, Spans, bool]] = []
        self.streams = [acl.aclrtCreateStream()[1] for _ in range(3)]
        self.events: list[tuple[Any, int | None]] = [
            (acl.aclrtCreateEvent()[1], None) for _ in range(2)
        ]
        self.memory = acl.aclrtMalloc(self.SIZE, 0)[1]
        acl.aclrtMemset(self.memory, self.SIZE, 1, self.SIZE)
        self.host = acl.aclrtMallocHost(self.SIZE)[1]

    def _use(self, step: int, start: int, count: int, write: bool) -> None:
        self.steps.append((step, Spans.between(start, start + count), write))

    def go(self) -> None:
        draw = self.random
        place, choice, number = draw.randrange(3), draw.random(), draw.randrange(2)
        stream, (event, recorded) = self.streams[place], self.events[number]
        first, second = (64 * block for block in draw.sample(range(4), 2))
        count, at = draw.randrange(1, 65), self.memory
        if choice < 0.15:
            assert acl.aclrtMemsetAsync(at + first, count, 2, count, stream) == 0
            self._use(self.graph.on_stream(place), first, count, True)
        elif choice < 0.3:
            assert acl.aclrtMemcpyAsync(at + second, count, at + first, count, 3, stream) == 0
            step = self.graph.on_stream(place)
            self._use(step, first, count, False)
            self._use(step, second, count, True)
        elif choice < 0.4:
            assert acl.aclrtMemcpyAsync(self.host, count, at + first, count, 2, stream) == 0
            step = self.graph.on_stream(place)
            self._use(step, first, count, False)
            self._use(step, 1000, count, True)
        elif choice < 0.5:
            assert acl.aclrtMemcpy(np.empty(count, np.uint8), count, at + first, count, 2) == 0
            self._use(self.graph.on_host(), first, count, False)
        elif choice < 0.65:
            assert acl.aclrtRecordEvent(event, stream) == 0
            self.events[number] = event, self.graph.on_stream(place)
        elif choice < 0.8:
            assert acl.aclrtStreamWaitEvent(stream, event) == 0
            self.graph.on_stream(place, *([] if recorded is None else [recorded]))
        elif choice < 0.9:
            assert acl.aclrtSynchronizeEvent(event) == 0
            self.graph.on_host(*([] if recorded is None else [recorded]))
        else:
            assert acl.aclrtSynchronizeStream(stream) == 0
            self.graph.on_host(self.graph.on_stream(place))

    def end(self) -> None:
        acl.aclrtSynchronizeDevice()
        for stream in self.streams:
            acl.aclrtDestroyStream(stream)
        for event, _ in self.events:
            acl.aclrtDestroyEvent(event)
        acl.aclrtFree(self.memory)
        acl.aclrtFreeHost(self.host)

    @property
    def races(self) -> bool:
        return any(
            (write or other_write) and one != other and spans & others and not self.graph.is_behind(one, other)
            for place, (one, spans, write) in enumerate(self.steps)
            for other, others, other_write in self.steps[:place]
        )  # fmt: skip


@pytest.fixture
def runtime():
    acl.aclInit(None)
    acl.aclrtSetDevice(0)
    yield
    acl.aclrtResetDevice(0)
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()


@pytest.mark.usefixtures("runtime")
def test_programs_are_told_of_races_and_of_nothing_else():
    racing = 0
    for seed in range(40):
        with sanitize() as findings:
            calls = _Calls(seed)
            for _ in range(9):
                calls.go()
            calls.end()
        rules = {finding.rule for finding in findings}
        assert rules <= {"unordered-read", "unordered-write"}
        assert bool(rules) == calls.races, (seed, [finding.text() for finding in findings])
        racing += calls.races
    assert 5 < racing < 35


@pytest.mark.usefixtures("runtime")
def test_work_that_waits_is_in_flight():
    """A stream waits for an event that nobody has recorded, and what its kernel reads is freed meanwhile."""
    with sanitize() as findings:
        (_, stream), (_, event) = acl.aclrtCreateStream(), acl.aclrtCreateEventWithFlag(1)
        (_, memory), (_, host) = acl.aclrtMalloc(64, 0), acl.aclrtMallocHost(64)
        acl.aclrtStreamWaitEvent(stream, event)
        acl.aclrtMemcpyAsync(memory, 64, host, 64, 1, stream)
        acl.aclrtFree(memory)
        acl.aclrtRecordEvent(event, None)
        acl.aclrtSynchronizeStream(stream)
        acl.aclrtFreeHost(host)
        acl.aclrtDestroyEvent(event)
        acl.aclrtDestroyStream(stream)
    assert [(finding.rule, finding.argument) for finding in findings] == [("free-in-use", "devPtr")]


def _with_gaps(array: np.ndarray) -> tuple[Any, int]:
    """A tensor on every second element of memory that has nothing between them."""
    count, size, dtype = max(2 * array.size - 1, 1), array.itemsize, dtype_of_numpy(array.dtype)
    _, memory = acl.aclrtMalloc(count * size, 0)
    for place, element in enumerate(array.reshape(-1)):
        acl.aclrtMemcpy(memory + 2 * place * size, size, np.array([element]), size, 1)
    strides = tuple(
        2 * stride // size for stride in np.ascontiguousarray(array).strides[: array.ndim]
    )
    return acl.aclCreateTensor(array.shape, dtype.code, strides, 0, 2, (count,), memory), memory


OF_EVERY_KIND = ("cross_entropy_loss", "l1_loss", "inplace_elu", "glu_backward", "prelu_backward")


@pytest.mark.usefixtures("runtime")
def test_operators_read_what_is_written_and_write_it_all(monkeypatch):
    monkeypatch.setattr(conftest, "device_tensor", _with_gaps)
    operators = {operator.python_name: operator for operator in conftest.OPERATORS}
    with sanitize() as findings:
        _, stream = acl.aclrtCreateStream()
        _, workspace = acl.aclrtMalloc(512, 0)
        for operator in map(operators.__getitem__, OF_EVERY_KIND):
            arguments, memory, *_ = conftest.document_program(operator)
            status, size, executor = getattr(aclnn, f"{operator.name}GetWorkspaceSize")(*arguments)
            assert (status, getattr(aclnn, operator.name)(workspace, size, executor, stream)) == (
                0,
                0,
            )
            acl.aclrtSynchronizeStream(stream)
            for value in arguments:
                if isinstance(value, Tensor):
                    _copy_elements(value)
                    acl.aclDestroyTensor(value)
                elif isinstance(value, Scalar):
                    acl.aclDestroyScalar(value)
            for address in memory:
                acl.aclrtFree(address)
        acl.aclrtFree(workspace)
        acl.aclrtDestroyStream(stream)
    assert [finding.text() for finding in findings] == []


def _copy_elements(tensor: Tensor) -> None:
    """Each element to the host, without what is between them."""
    size = tensor.dtype.itemsize
    for place in range(tensor.size):
        acl.aclrtMemcpy(np.empty(size, np.uint8), size, tensor.base + 2 * place * size, size, 2)
