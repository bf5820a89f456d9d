"""Forms: the ways to compute an elementwise kernel. Every formula has its plain form, written by calling it;
tuned forms stand beside it where measuring showed that more can be had.

A form gets a `Site` (the function being written) and writes the vector loop for dense or single-valued operands;
`tiles` brings every other geometry to that.
"""

from __future__ import annotations

import functools
import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import ANY_COUNT, Free, Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.formulas.words import BY_PIECES, HEAVY, ShortWords, Words
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.control import MAX_ARGUMENTS
from openaclnn.engines.cpu.launching.launcher import Launch
from openaclnn.engines.cpu.layouts import gathered
from openaclnn.engines.formulas import Formula
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.callers import (
    CALL_HEADER,
    FREE_NUMBERS,
    MAX_NUMBERS,
    NOT_READY,
    SHAPE,
    STRIDES,
    CallBlock,
    CallWords,
)
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import LINE, Machine, last_cache, machine
from openaclnn.engines.machine.kinds import SIZE, signature
from openaclnn.engines.machine.values import Shape, Value

DERIVE = signature("i64", "i64", "i64")
PAST_STREAMS = 4  # vectors a turn: more take longer where lines are written whole


class Flat(NamedTuple):
    """A compiled kernel for row-major operands, some perhaps of one element, and all it takes but sizes and addresses."""

    kernel: int
    grain: int
    constants: tuple[int, ...]
    reciprocal: int  # which constant is one over the count; -1: none
    counts: tuple[int, int]  # of elements that it serves: from, below
    keep: Any  # what constants point into
    derive: int = 0  # the function that makes constants of other numbers; 0: none
    derived_from: tuple[str, ...] = ()  # the plan's numbers that it takes
    dense: Callable[[], int] = int  # gives the kernel that takes no operand as one element for all
    gathering: Callable[[], int] = int  # gives what brings elements of any strides to that
    gathers: int = 0  # up to how many of those

    def runner(self, plan: Plan, strided: bool) -> Callable[..., int] | None:
        """`run(addresses, stream, shape, constants)`, or for any strides, with these before the constants: a builtin; None for more operands than it takes."""
        operands = plan.operands
        if len(operands) > gathered.MAX_OPERANDS or len(self.constants) + len(operands) >= MAX_ARGUMENTS:  # fmt: skip
            return None
        kernel, gathering = (self.dense(), self.gathering()) if strided else (self.kernel, 0)
        items = [operand.dtype.itemsize for operand in operands]
        return _any_size(kernel, gathering, self.grain, self.reciprocal, len(plan.outputs), *items)


@functools.lru_cache(maxsize=256)
def _any_size(*words: int) -> Callable[..., int]:
    """Such a builtin, which takes 20 us to make; whatever the constants."""
    return _FlatBlock(words).run


# The block of such a builtin, behind what calls it: the pool's, the kernel and what gathers for it or 0, grain, which constant is one over the count or -1, how many outputs
# there are, and each operand's itemsize.
POOL, KERNEL, GATHERING, GRAIN, RECIPROCAL, OUTPUTS, ITEMS = range(CALL_HEADER, CALL_HEADER + 7)


class _FlatBlock(CallBlock):
    def __init__(self, words: Sequence[int]) -> None:
        takes = SHAPE | (STRIDES if words[GATHERING - KERNEL] else 0) | FREE_NUMBERS
        super().__init__(KERNEL + len(words), takes, integers=(1 << MAX_NUMBERS) - 1)
        self._block[POOL:] = array("q", (pool.control_address(), *words))
        self.run = self.callable("flat.any_size", _emit_any_size, self._start)

    def _start(self, *call: Any) -> int:
        """The first call that wants workers."""
        pool.ensure_started()
        return self.run(*call)


def _emit_any_size(code: Code, arguments: Sequence[Value]) -> None:
    """A flat kernel on a call's elements; what gathers them is told where they lie."""
    call, count = CallWords(code, arguments), code.variable(1)
    kernel, gathering, grain, reciprocal = (call.block.read(slot) for slot in range(KERNEL, OUTPUTS))  # fmt: skip
    function, gathers = code.variable(kernel), gathering != 0
    launch = Launch(code, code.slots(call.block.read(POOL)), call.locked != 0)
    with code.loop(0, call.axes) as axis:
        count.set(count.get() * call.shape.read(axis))
    constants = launch.arguments.at(gathers.to("i64"))
    with code.loop(0, call.number_count) as index:
        constants.write(index, call.numbers.read(index))
    with code.when(reciprocal >= 0):
        share = (code.double(1.0) / count.get().to("f64")).to("f32")
        constants.write(reciprocal, share.bits_as("i32").unsigned("i64"))
    addresses = constants.at(call.number_count)
    with code.loop(0, call.operands) as index:
        addresses.write(index, call.addresses.read(index))
    geometry = code.frame("i64", gathered.GEOMETRY_SLOTS)
    with code.when(gathers):
        gathered.write_geometry(geometry, call, kernel, call.block.read(OUTPUTS), call.block.at(ITEMS))  # fmt: skip
        launch.arguments.write(0, geometry.address())
        function.set(gathering)
    with code.when(launch.ready(count.get(), grain)):
        code.leave(launch.execute(function.get(), count.get(), grain))
    code.leave(code.integer(NOT_READY))


class Derive(NamedTuple):
    """How a form's constants follow from a plan's numbers, as code: a call with other numbers needs nothing else.

    `write(code, numbers)` gets FLOAT values as float64, within the bounds of the plan's free numbers, and gives whether the
    form serves them, and some of its constants by their places.
    """

    numbers: tuple[str, ...]
    write: Callable[[Code, list[Value]], tuple[Value, dict[int, Value]]]


class Form(NamedTuple):
    """How to compute a plan's elements."""

    name: str  # tells this code from others', together with the operands' dtypes
    write: Callable[[Site], None]
    numbers: tuple[float, ...] = ()  # run-time constants, as float32
    table: Any = None  # 65,536 float32 values, after the numbers
    names: tuple[str, ...] = ()  # of the numbers that the plan has too
    counts: tuple[int, int] = ANY_COUNT  # of elements that it serves: from, below
    derive: Derive | None = None
    ours: bool = True  # whether the package's sources alone say what is written


class Tuned(NamedTuple):
    """A form for some plans of a kernel, tried before the plain one."""

    choose: Callable[[Plan], Form | None]  # None where it does not serve a plan
    gain: str  # what measuring showed
    examples: tuple[Mapping[str, Any], ...]  # numbers that it serves


TUNED: dict[str, list[Tuned]] = {}
"""The tuned forms by kernel name, in the order in which they are tried; the files under `tuned/` enter theirs."""


def tuned(
    kernel: str, *, gain: str, examples: Sequence[Mapping[str, Any]]
) -> Callable[[Callable[[Plan], Form | None]], Callable[[Plan], Form | None]]:
    """Enter a function that gives a kernel's form for the plans it serves."""

    def enter(choose: Callable[[Plan], Form | None]) -> Callable[[Plan], Form | None]:
        TUNED.setdefault(kernel, []).append(Tuned(choose, gain, tuple(examples)))
        return choose

    return enter


class Signature(NamedTuple):
    """The dtypes a kernel is compiled for, and which inputs are one value for all elements."""

    inputs: tuple[str, ...]
    compute: str
    output: str
    single: tuple[int, ...] = ()
    more: tuple[str, ...] = ()  # outputs after the first

    def __str__(self) -> str:
        kinds = [name + "!" * (index in self.single) for index, name in enumerate(self.inputs)]
        return f"{','.join(kinds)}:{self.compute}->{','.join((self.output, *self.more))}"


class Rare(NamedTuple):
    """Elements that want more operations, and are so rare that a loop does better to ask whether there are any.

    The formula has a switch for those. `occurs(values, numbers)` is a vector of truth values with one that holds if there are such elements.
    """

    switch: str
    occurs: Callable[[Sequence[Value], Mapping[str, Value]], Value]


class Site:
    """The function under construction: its operands, numbers and loop. `past`: results go past the caches."""

    def __init__(
        self,
        code: Code,
        arguments: Sequence[Value],
        form: Form,
        signature: Signature,
        past: bool = False,
    ) -> None:
        block, start, stop = arguments
        self.code, self.signature, self.past = code, signature, past
        self.in_pairs = False  # whether neighbours lie in two streams, of as many as pair up
        self.count = stop - start
        self.opaque = numerics.Opaque(code)
        words = code.array(block, "i64")
        first = 1 + len(form.numbers)
        self.numbers = [
            words.read(1 + index).to("i32").bits_as("f32") for index in range(len(form.numbers))
        ]
        if form.table is not None:
            self.table = code.array(words.read(first), "f32")
            first += 1
        self.operands = []
        for index, kind in enumerate((*signature.inputs, signature.output, *signature.more)):
            address = words.read(first + index)
            if index not in signature.single:
                address = address + start * SIZE[kind]
            self.operands.append(code.array(address, kind))
        self.singles = {
            index: numerics.load(self.operands[index], code.integer(0), Shape(1, 1)).lane(0)
            for index in signature.single
        }

    @property
    def plain(self) -> bool:
        """Whether all inputs are FLOAT."""
        return all(kind == "f32" for kind in self.signature.inputs)

    def load(self, shape: Shape, operand: int, index: Value, volatile: bool = False) -> Value:
        """An input's values as float32."""
        if operand in self.singles:
            return self.singles[operand].fill(shape)
        if self.in_pairs and shape.streams % 2 == 0:
            return numerics.load_pairs(self.operands[operand], index, shape)
        return numerics.load(self.operands[operand], index, shape, volatile)

    def load_all(self, shape: Shape, index: Value) -> list[Value]:
        """Inputs loaded one after another, as written, where only memory is the limit.

        LLVM would put each load next to its use, which hides less of the memory's latency: smooth L1 on
        2^24 FLOAT elements took 6.9 ms so and takes 6.2 in order (PyTorch 6.7, a bare loop over the bytes 6.3).
        """
        inputs = range(len(self.signature.inputs))
        return [self.load(shape, operand, index, volatile=self.plain) for operand in inputs]

    def streaming(self) -> int:
        """Streams for a loop that memory limits: nine FLOAT ones, where three inputs of that fit the registers."""
        return 9 if self.plain and machine().registers >= 32 else 4

    def unless(self, rare: Value, usual: Callable[[], Value], whole: Callable[[], Value]) -> Value:
        """What `usual` gives or, where a lane of a vector's truth values holds, `whole`, which gives the same in all other lanes."""
        code = self.code
        with code.either(rare.reduce("or"), likely=False) as (seldom, often):
            with seldom:
                results = [code.variable(one) for one in whole().streams()]
            with often:
                for result, one in zip(results, usual().streams(), strict=True):
                    result.set(one)
        return code.joined([result.get() for result in results])

    def loop(self, streams: int, body: Callable[[Shape, Value], Any]) -> None:
        """Write what `body` computes for every index, a value for each output: rounded to the computation type, then the output's.

        Streams are chosen for 32 registers; half as many fit into 16.
        """
        inputs, compute, output, _, more = self.signature
        any_nan = any(kind != "bf16" for kind in inputs)

        def rounded(values: Value, kind: str) -> Value:
            if compute in ("f32", kind):
                return values
            return numerics.widen(numerics.narrow(values, compute, self.opaque, any_nan), compute)

        def one(shape: Shape, index: Value) -> None:
            results = body(shape, index)
            results = results if more else (results,)
            outputs = self.operands[len(inputs) :]
            for values, place, kind in zip(results, outputs, (output, *more), strict=True):
                if self.in_pairs and shape.streams % 2 == 0:
                    numerics.store_pairs(values, place, index, self.opaque)
                    continue
                numerics.store(rounded(values, kind), place, index, self.opaque, any_nan)

        fitting = streams if machine().registers >= 32 else max(1, streams // 2)
        if self.past:
            self._loop_past(lambda shape, index: rounded(body(shape, index), output), one, fitting)
            return
        self.code.elements(self.count, fitting, one)

    def _loop_past(
        self, values: Callable[[Shape, Value], Value], one: Callable[[Shape, Value], None], streams: int
    ) -> None:  # fmt: skip
        """From the first whole line of FLOATs on, results go past the caches."""
        code, out = self.code, self.operands[-1]
        start = out.address()
        whole = (start & (SIZE["f32"] - 1)) == 0
        ahead = (-start & (LINE - 1)).unsigned_div(SIZE["f32"]).least(self.count)
        index = code.strides(code.integer(0), ahead, 1, functools.partial(one, Shape(1, 1)))

        def line(index: Value) -> None:
            out.stream(values(wide, index), index)

        wide = Shape(min(PAST_STREAMS, max(machine().registers // 8, streams)), code.lanes)
        index = code.strides(index, whole.choose(self.count, 0), wide.elements, line)
        for shape in (Shape(1, code.lanes), Shape(1, 1)):
            index = code.strides(index, self.count, shape.elements, functools.partial(one, shape))
        code.settle()

    def zero(self, lanes: int) -> Value | float:
        """What x <= 0 compares with."""
        return self.opaque.zero(lanes) if "f16" in self.signature.inputs else 0.0


def formula_form(
    formula: Formula,
    numbers: Mapping[str, float],
    switches: Mapping[str, bool] | None = None,
    derive: Derive | None = None,
    rare: Rare | None = None,
) -> Form:
    """A formula as it is: its function called with vectors, which write the code."""
    name, write = _written(formula, tuple(switches.items()) if switches else (), rare)
    names = formula.numbers
    ours = (formula.function.__module__ or "").startswith("openaclnn.")
    return Form(
        name, write, tuple([numbers[number] for number in names]), None, names, derive=derive,
        ours=ours,
    )  # fmt: skip


def _streams(name: str, by_pieces: bool) -> int:
    """Of a loop that computes longer than memory takes: as many as hide the latencies of one, unless what they hold at once is more than the registers.
    With 3, swish takes 0.83 of the time with AVX-512 and mish's gradient 0.9; others take more. Coefficients are looked up for 4 at once where bytes are."""
    if by_pieces and machine().picks_bytes:
        return 4 if machine().registers >= 32 else 8
    return 3 if name in {"swish", "mish_backward"} and not machine().neon else 4


@functools.cache
def _written(
    formula: Formula, switches: tuple[tuple[str, bool], ...], rare: Rare | None
) -> tuple[str, Callable[[Site], None]]:
    """The name of a formula's form, and what writes it."""
    chosen = dict(switches)
    words_of_it = formula.words({**chosen, **({rare.switch: True} if rare else {})})
    light, by_pieces = not HEAVY & words_of_it, bool(BY_PIECES & words_of_it)

    def write(site: Site) -> None:
        words = Words if site.signature.compute == "f32" else ShortWords
        term = words(site.code, site.zero).term
        named = dict(zip(formula.numbers, map(term, site.numbers), strict=True))
        inputs, _, output, _, more = site.signature
        site.in_pairs = {*inputs, output, *more} == {"bf16"} and not machine().neon

        def body(shape: Shape, index: Value) -> Any:
            if light:
                values = site.load_all(shape, index)
            else:
                values = [
                    site.load(shape, operand, index) for operand in range(len(formula.values))
                ]
            terms = [*map(term, values)]

            def computed(**switched: bool) -> Any:
                return formula.function(*terms, **named, **chosen, **switched)

            if rare is None:
                return computed()
            ways = (functools.partial(computed, **{rare.switch: on}) for on in (False, True))
            return site.unless(rare.occurs(terms, named), *ways)

        site.loop(site.streaming() if light else _streams(formula.name, by_pieces), body)

    suffix = "".join(f".{name}" for name, on in switches if on)
    return f"{formula.name}{suffix}", write


def past_from(signature: Signature) -> int:
    """From how many elements on a flat kernel's results go past the caches: where its operands are more than these hold.

    A line that is written whole need not be read before: on 16 Xeon cores 2^25 FLOAT elements take 0.64 (ELU from its result)
    to 0.82 of the time, and 0.85 to 0.94 with an operation that reads the result. Where that still finds it in a cache, it loses. Of 16-bit
    dtypes arithmetic is the limit, and on ARM nothing is gained.
    """
    inputs, _, output, single, more = signature
    if output != "f32" or more or machine().neon:
        return ANY_COUNT[1]
    moved = [kind for index, kind in enumerate(inputs) if index not in single]
    return last_cache() // sum([SIZE[kind] for kind in (*moved, output)])


def kernel_address(form: Form, signature: Signature, past: bool = False) -> int:
    """The compiled flat kernel of a form."""
    key = (form.name, signature, machine(), past)
    address = _addresses.get(key)
    if address is None:
        address = _addresses[key] = _compiled(form, signature, past)
    return address


_addresses: dict[tuple[str, Signature, Machine, bool], int] = {}


def _compiled(form: Form, signature: Signature, past: bool) -> int:
    def emit(code: Code, arguments: Sequence[Value]) -> None:
        form.write(Site(code, arguments, form, signature, past))

    name = f"{form.name} {signature}{' past' * past}"
    return cache.compiled(name, emit, few=None if past else _few, ours=form.ours)


def _few(code: Code, arguments: Sequence[Value]) -> Value:
    _, start, stop = arguments
    return stop - start <= cache.FEW


def constants(form: Form) -> tuple[int, ...]:
    """The numbers' bits, and the table's address, as the kernel's first arguments."""
    # A NaN's payload would survive the rounding to bfloat16 only by luck: all become the plain one.
    values = form.numbers
    if math.isnan(sum(values)):
        values = tuple([math.nan if math.isnan(value) else value for value in values])
    floats, words = _structs(len(values))
    try:
        packed = floats.pack(*values)
    except OverflowError:  # what FLOAT holds as infinite
        packed = floats.pack(*map(float_of, values))
    bits: tuple[int, ...] = words.unpack(packed)
    return bits if form.table is None else (*bits, form.table.ctypes.data)


@functools.cache
def _structs(count: int) -> tuple[struct.Struct, struct.Struct]:
    """So many FLOATs, and their bits."""
    return struct.Struct(f"{count}f"), struct.Struct(f"{count}I")


def plain_derivation(formula: Formula, free: tuple[Free, ...]) -> Derive | None:
    """A plain form's own numbers, as they are given; None where some select other code."""
    if not free or formula.name in TUNED:
        return None
    return _as_given(formula.numbers, tuple([number.option for number in free]))


@functools.cache
def _as_given(numbers: tuple[str, ...], free: tuple[str, ...]) -> Derive | None:
    if not {*free} <= {*numbers}:
        return None
    places = [numbers.index(name) for name in free]

    def write(code: Code, numbers_of_call: list[Value]) -> tuple[Value, dict[int, Value]]:
        return code.integer(0) == 0, dict(zip(places, numbers_of_call, strict=True))

    return Derive(free, write)


def derive_address(form: Form, before: int = 0) -> int:
    """The compiled `int64_t derive(double *numbers, int64_t *constants)` of a form: not 0 where it serves them. So many other
    constants come before its own.
    """
    derive = form.derive
    if derive is None:
        return 0

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        values, constants = code.array(arguments[0], "f64"), code.slots(arguments[1])
        numbers = [values.read(index).to("f32").to("f64") for index in range(len(derive.numbers))]
        serves, derived = derive.write(code, numbers)
        for place, number in derived.items():
            rounded = number.to("f32")
            plain = rounded.is_nan().choose(math.nan, rounded)
            constants.write(before + place, plain.bits_as("i32").unsigned("i64"))
        code.leave(serves.to("i64"))

    return cache.compiled(f"{form.name}.numbers{before or ''}", emit, DERIVE, ours=form.ours)
