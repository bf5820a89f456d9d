"""Launches as machine code: arguments in, a kernel on the caller or shared among threads, the status word out.

The caller cuts a large kernel into parts, and workers or an OpenMP team take them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.engines.cpu.launching import control as at
from openaclnn.engines.machine.builtins import integer_of, python
from openaclnn.engines.machine.callers import CALL_HEADER, NOT_READY, CallBlock, CallWords
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.modes import is_standard, read_mode, set_standard, write_mode
from openaclnn.engines.machine.numbers import Truth, all_of
from openaclnn.engines.machine.values import Value

TINY = 64  # count <= grain / TINY is a tiny call
BRIEF = 512  # elements, of a call that has one unit


def emit_entry(code: Code, control: Array, passed: Array, number: Value) -> None:
    """The builtin `launch(kernel, count, grain, *arguments)`."""
    launch = Launch(code, control)
    kernel, count, grain = (integer_of(code, passed.read(index)) for index in range(3))
    with code.loop(0, number - 3) as index:
        launch.arguments.write(index, integer_of(code, passed.read(index + 3)))
    launch.run(kernel, count, grain)


# The block of one kernel, behind what calls it: the pool's, the kernel, units and grain, how many constants it has, and these.
POOL, KERNEL, UNITS, GRAIN, CONSTANTS, VALUES = range(CALL_HEADER, CALL_HEADER + 6)


def emit_bound(code: Code, arguments: Sequence[Value]) -> None:
    """One kernel with its constants, of a call's addresses. What it is not made for, or before the workers run, the function in Python does."""
    call = CallWords(code, arguments)
    pool, kernel, units, grain, constants = (call.block.read(slot) for slot in range(POOL, VALUES))
    launch = Launch(code, code.slots(pool), call.locked != 0)
    fits = constants + call.operands <= at.MAX_ARGUMENTS
    with code.when(launch.ready(units, grain) & fits):
        with code.loop(0, constants) as index:
            launch.arguments.write(index, call.block.read(index + VALUES))
        with code.loop(0, call.operands) as index:
            launch.arguments.write(constants + index, call.addresses.read(index))
        code.leave(launch.execute(kernel, units, grain))
    code.leave(code.integer(NOT_READY))


class BoundBlock(CallBlock):
    """The block of a kernel whose constants are known; `keep` lives as long: the arrays that constants point into."""

    def __init__(
        self, pool: int, kernel: int, units: int, grain: int, constants: Sequence[int], keep: Any
    ) -> None:
        super().__init__(VALUES + len(constants), takes=0)
        words = pool, kernel, units, grain, len(constants), *constants
        self._block[POOL:] = array("q", words)
        self._held.append(keep)

    def function(self, fallback: Callable[..., int]) -> Callable[..., int]:
        """The builtin itself; `fallback` takes calls that it is not ready for."""
        return self.callable("pool.bound", emit_bound, fallback)


class Launch:
    """A launch being written: its argument block is filled, then it runs. `locked`: the interpreter's lock is held, which code may know at run time alone."""

    def __init__(self, code: Code, control: Array, locked: Truth = True) -> None:
        self.code, self.control, self.locked = code, control, locked
        self.block = code.frame("i64", at.FIRST_ARGUMENT + at.MAX_ARGUMENTS)
        self.block.write(at.STATUS, 0)
        self.arguments = self.block.at(at.FIRST_ARGUMENT)

    def ready(self, count: Value, grain: Value) -> Value:
        """Whether the workers run, or are not needed."""
        return self.control.flag(at.STARTED) | (count <= grain)

    def execute(self, kernel: Value, count: Value, grain: Value) -> Value:
        """Run a kernel; its status word."""
        code, control = self.code, self.control
        # A tiny call keeps the interpreter's lock: with a busy second thread, giving it away costs 5 ms.
        gives = all_of(self.locked, count * TINY > grain)
        if gives is False:
            share(control, kernel, self.block, count, grain)
            return self.block.read(at.STATUS)
        state = code.variable(0)
        with code.when(gives):
            state.set(python(code, "PyEval_SaveThread", "i64"))
        share(control, kernel, self.block, count, grain)
        with code.when(gives):
            python(code, "PyEval_RestoreThread", None, state.get())
        return self.block.read(at.STATUS)

    def run(self, kernel: Value, count: Value, grain: Value) -> None:
        """Run a kernel and return its status word."""
        status = self.execute(kernel, count, grain)
        self.code.leave(python(self.code, "PyLong_FromLongLong", "i64", status))


WORKER = signature("i64", "i64")
"""What pthread_create starts; it gets the worker's block."""


MEMBER = signature(None, "i64")
"""What each thread of an OpenMP team runs; it gets the control block."""


def emit_member(code: Code, arguments: Sequence[Value]) -> None:
    """Do a share of a short task, else take parts until none is left; the thread is another library's, and has its own mode back."""
    (control,) = arguments
    mode = read_mode(code)
    with code.when(~is_standard(mode), likely=False):
        set_standard(code)
    shared = code.slots(control)
    rank = shared.call(at.TEAM_RANK, "i32").to("i64")
    with code.either(shared.flag(at.SHORT)) as (short, long):
        with short:
            # Not always as many as were asked for.
            task = _Task(shared, shared.call(at.TEAM_MEMBERS, "i32").to("i64"))
            first, many = task.share(rank)
            with code.when(many > 0):
                task.run(first, first + many)
        with long:
            _take_parts(shared, rank)
    with code.when(~is_standard(mode), likely=False):
        write_mode(code, mode)


def emit_worker(code: Code, arguments: Sequence[Value]) -> None:
    """A thread's whole life: wait for go, take parts, say done."""
    (address,) = arguments
    worker = code.slots(address)
    control = code.slots(worker.read(at.CONTROL))
    set_standard(code)  # a thread begins in the mode of the one that created it
    with code.forever():
        _wait(control, worker.at(at.GO))
        _take_parts(control, worker.read(at.RANK))
        control.call(at.SEM_POST, "i32", worker.at(at.DONE))


def share(control: Array, kernel: Value, block: Array, count: Value, grain: Value) -> None:
    """Share the work if it is large, there are workers and nobody else uses them; else do it here."""
    code = control.code
    active = control.read(at.ACTIVE)
    with code.first_of() as shared:
        worthwhile = (count > grain) & (active > 0)
        with code.when(worthwhile), code.when(code.take_flag(control, at.BUSY)):
            _share_out(control, kernel, block, count, grain, active)
            code.leave_flag(control, at.BUSY)
            shared()
        code.call(kernel, None, block, 0, count)


def _share_out(
    control: Array, kernel: Value, block: Array, count: Value, grain: Value, active: Value
) -> None:
    code = control.code
    team = control.read(at.TEAM)
    with code.either(team != 0) as (openmp, workers):
        with openmp:
            size = code.variable(active + 1)
            with code.when(control.read(at.TEAM_SIZE) != 0):
                size.set(control.call(at.TEAM_SIZE, "i32").to("i64"))
            threads = size.get().least(at.MAX_WORKERS + 1)
            _cut(control, kernel, block, count, threads, count * 2 <= grain * threads)
            # All of the team, however few are needed: another number than the last costs more.
            body = control.read(at.TEAM_BODY)
            code.call(team, None, body, control, size.get().to("i32"), code.integer(0).to("i32"))
        with workers:
            helpers = (count.unsigned_div(grain) + 1).least(active)
            # Workers wake late: of short tasks, too, others do what is theirs.
            _cut(control, kernel, block, count, helpers + 1, code.integer(0) != 0)
            with code.when(control.read(at.CPUS) > 1):
                _keep_off_this_cpu(control)
            with code.loop(0, helpers) as index:
                control.call(at.SEM_POST, "i32", _worker(control, index).at(at.GO))
            _take_parts(control, code.integer(0))
            with code.loop(0, helpers) as index:
                _wait(control, _worker(control, index).at(at.DONE))


def _cut(
    control: Array, kernel: Value, block: Array, count: Value, threads: Value, short: Value
) -> None:
    """Write the task down. Of a short one each thread does its share at once: counting parts and looking for what others have left takes 1.7 us on 16 threads
    (2^18 FLOAT elements of ReLU in 9.5 us instead of 12). Of others few units are cut finely: of 65, two at a time would keep 16 threads as long as 96."""
    wanted = threads * at.EACH
    few, many = count.unsigned_div(wanted), (count + wanted - 1).unsigned_div(wanted)
    whole_lines = many >= 512
    part = whole_lines.choose((many + 63) & -64, (few > 1).choose(few, 1))
    step = short.choose(whole_lines.choose(64, 1), part)
    task = (
        (at.KERNEL, kernel), (at.ARGUMENTS, block.address()), (at.COUNT, count), (at.STEP, step),
        (at.PARTS, (count + step - 1).unsigned_div(step)), (at.THREADS, threads), (at.SHORT, short.to("i64")),
    )  # fmt: skip
    for where, value in task:
        control.write(where, value)
    with control.code.when(~short), control.code.loop(0, threads) as rank:
        _taken(control, rank).write(0, 0)


def _taken(control: Array, rank: Value) -> Array:
    return control.at(rank * at.TAKEN_SLOTS + at.TAKEN)


def _worker(control: Array, index: Value) -> Array:
    return control.at(index * at.WORKER_SLOTS + at.WORKERS)


def _wait(control: Array, semaphore: Array) -> None:
    """sem_wait until it succeeds: signals interrupt it."""
    with control.code.repeat_while(lambda: control.call(at.SEM_WAIT, "i32", semaphore) != 0):
        pass


class _Task:
    """What `_cut` wrote down, among so many threads."""

    def __init__(self, control: Array, threads: Value) -> None:
        self.control, self.threads = control, threads
        parts = control.read(at.PARTS)
        self.each = parts.unsigned_div(threads)
        self.more = parts - self.each * threads  # threads that have one part more

    def share(self, owner: Value) -> tuple[Value, Value]:
        """The first of a thread's parts, and how many it has."""
        many = (owner < self.more).choose(self.each + 1, self.each)
        return owner * self.each + owner.least(self.more), many

    def run(self, first: Value, last: Value) -> None:
        control, step = self.control, self.control.read(at.STEP)
        stop = (last * step).least(control.read(at.COUNT))
        control.call(at.KERNEL, None, control.read(at.ARGUMENTS), first * step, stop)


def _take_parts(control: Array, rank: Value) -> None:
    """Run the thread's own parts, then those that others have not come for: threads are never equally fast, and leaving each its share takes 1.1 to 1.25 times
    as long from half a million elements on.

    Its own are those that it had in the last call and that PyTorch gives it: what lies there is in its caches (2^20 FLOAT
    elements in 27 us, 49 where threads take parts as they come).
    """
    code, task = control.code, _Task(control, control.read(at.THREADS))
    threads = task.threads
    thread = rank.unsigned_rem(threads)
    with code.loop(0, threads) as turn:
        owner = (thread + turn >= threads).choose(thread + turn - threads, thread + turn)
        first, many = task.share(owner)
        taken = _taken(control, owner)
        following = code.variable(code.read_shared(taken, 0))
        with code.repeat_while(lambda: following.get() < many):
            part = code.add_shared(taken, 0, code.integer(1))
            with code.when(part < many):
                task.run(first + part, first + part + 1)
            following.set(part + 1)


def _keep_off_this_cpu(control: Array) -> None:
    """Exclude the caller's CPU from the workers' affinity, if it is not already."""
    code = control.code
    cpu = control.call(at.GETCPU, "i32").to("i64")
    moved, known = cpu != control.read(at.AVOID), cpu.below(64 * at.MASK_SLOTS)
    with code.when(moved & known):
        control.write(at.AVOID, cpu)
        mask = code.frame("i64", at.MASK_SLOTS)
        for word in range(at.MASK_SLOTS):
            mask.write(word, control.read(at.MASK + word))
        place, bit = cpu >> 6, code.integer(1) << (cpu & 63)
        mask.write(place, mask.read(place) & ~bit)
        with code.loop(0, control.read(at.ACTIVE)) as index:
            handle = _worker(control, index).read(at.HANDLE)
            control.call(at.SET_AFFINITY, "i32", handle, 8 * at.MASK_SLOTS, mask)
