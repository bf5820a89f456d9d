"""The words of formulas as vector code: polynomials and selections on every lane, no branches and no calls.

An exponential is (high + low) 2^n until it is used, so that what follows rounds once. What two words of a formula share, the
exponential and the quotient of x and of -x, LLVM computes once. `ShortWords` are for results of 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from openaclnn.engines.cpu.arithmetic.functions import (
    HALF_ROOT_BITS_64,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    ROUNDER,
    Exp,
    Expm1,
    expm1_64,
    power64,
)
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value, fma, intrinsic, maximum, minimum

HEAVY = frozenset(
    {
        "erf", "erfc", "erfinv", "exp", "expm1", "gate", "gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope", "log", "log1p", "log_sigmoid", "logit", "low_log", "low_log1m",
        "mish", "normal_cdf", "normal_pdf", "scaled_exp", "scaled_expm1", "scaled_gate", "sigmoid", "softened", "softplus", "tanh",
    }
)  # fmt: skip
"""Words that take longer than the memory does."""
BY_PIECES = frozenset({"gate", "gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope", "normal_cdf", "scaled_gate", "sigmoid"})  # fmt: skip
"""Words that look up the coefficients of a piece."""

# Minimax polynomials with FLOAT coefficients, the highest power first. Where the last is a pair, its second number is what rounding left of it.
# exp(r) = 1 + r + r^2 P(r) on +-ln(2)/2, to 2^-28.
EXP = (0.0013820742024108768, 0.008369248360395432, 0.041668280959129333, 0.16666516661643982, 0.4999999403953552)  # fmt: skip
# log(1 + f) = f - f^2 / 2 + f^3 P(f) for f between sqrt(1/2) - 1 and sqrt(2) - 1, to 2^-30.
LOG = (
    0.06750279664993286, -0.11673499643802643, 0.11884847283363342, -0.12405844032764435, 0.1422017514705658,
    -0.1666799932718277, 0.20002077519893646, -0.25000008940696716, 0.3333331346511841,
)  # fmt: skip
# log(1 + e) = s + s^3 P(s^2), s = e / (1 + e / 2), for e up to 1, to 2^-27.
LOG1P = (0.0005470188916660845, 0.0021877295803278685, 0.012506700120866299, 0.08333302289247513)
# erf(x) = x + x P(x^2) up to 1, to 2^-29.
ERF = (
    7.806903886375949e-05, -0.0007997853099368513, 0.005187162198126316, -0.026853347197175026, 0.11283578723669052,
    -0.3761262595653534, 0.12837916612625122,
)  # fmt: skip
# log(erfc(t)) for t from 1 to 4.1, to 2^-29 of erf.
LOG_ERFC = (
    0.00018638120673131198, -0.0029476804193109274, 0.021838152781128883, -0.10310692340135574, -0.6381446719169617,
    -1.127089262008667, -0.00034151188447140157,
)  # fmt: skip
# exp(t^2 / 2) normal_cdf(-t) = u P(u - MILLS_CENTRE), u = 1 / (t + 23/8), for t up to 14.5; its slope to a third.
MILLS = (
    2190.0205078125, -1257.78271484375, -181.43162536621094, 253.86520385742188, 15.308189392089844, -43.104793548583984,
    -8.380183219909668, 7.733826160430908, 6.07248592376709, 2.361847400665283,
)  # fmt: skip
MILLS_LAST, MILLS_CENTRE = 0.6300777792930603, 0.1375732421875
MILLS_SLOPE = -5.42855121, 4.75730106, 1.54160116
# erfinv(x) / x in w = -log(1 - x^2): of w - 5/2 below 5, to 2^-27, else of sqrt(w) - 3, to 2^-26.
INVERSE = (
    -8.83206041635276e-09, 2.3177625152470682e-08, 4.6682100673933746e-07, -3.4619886264408706e-06, -4.966972028341843e-06,
    0.00021834151993971318, -0.0012527336366474628, -0.00417738314718008, 0.24664027988910675,
)  # fmt: skip
INVERSE_LAST = 1.5014094114303589, -5.214786824581097e-08
INVERSE_TAIL = (
    0.00011633839312708005, -0.00030996353598311543, -5.8121215261053294e-05, 0.001485646702349186, -0.0035963007248938084,
    0.0056867157109081745, -0.0076376707293093204, 0.00944532360881567, 1.001675009727478,
)  # fmt: skip
INVERSE_TAIL_LAST = 2.832976818084717, -1.709165786678568e-08
BELL = tuple(c / 2.0**power for power, c in zip(range(5, 0, -1), EXP, strict=True))  # of 2 r
HALF_EXP = tuple(coefficient / 2 for coefficient in EXP)
DENSITY, DENSITY_LEFT = 0.3989422917366028, -1.133517e-08  # 1 / sqrt(2 pi)
ROOT_2, ROOT_2_LEFT = 1.4142135381698608, 2.420323427e-08
TANH_SCALE, TANH_SCALE_LEFT = 1.5957691669464111, -4.534068032135963e-08  # sqrt(8 / pi)
TANH_CUBE, TANH_CUBE_LEFT = 0.07135481387376785, 2.3988323966106506e-09  # 0.044715 sqrt(8 / pi)
LOWEST = -110.9  # the least number of `_falling`, whose power of two is 0 from -104.4 on, and 2^32 times as much from here on
LOG_LN2_HIGH, LOG_LN2_LOW = 0.693359375, -2.12194440e-4
HALF_ROOT_BITS = 0x3F3504F3  # of sqrt(1/2)
# log((1 + s / 2) / (1 - s / 2)) = s + s^3 P(s^2) for s up to 0.533, to 2^-30.
LOGIT = (0.0005022266414016485, 0.002215268090367317, 0.012501619756221771, 0.08333328366279602)
LOGIT_NEAR, LOGIT_LEAST = 6710886, 7 << 23  # 0.8 in units of 2^-23; the bits of 2^-120
LARGE = 1024.0  # functions of what is larger are 0, infinite or a line, whatever its rest
# For 16 bits: exp(r) to 2^-23, log1p(e) = e + e^2 P(e) to 2^-22, log as above to 2^-22, MILLS to 2^-21.
SHORT_EXP = (0.008290749974548817, 0.041902314871549606, 0.16667649149894714, 0.49999117851257324, 0.9999997019767761, 1.0)  # fmt: skip
SHORT_EXPM1 = (0.008312140591442585, 0.041894543915987015, 0.16667132079601288, 0.4999920129776001)
SHORT_LOG1P = (
    -0.008777273818850517, 0.04498090222477913, -0.10901524871587753, 0.1784670501947403, -0.24536699056625366,
    0.3328403830528259, -0.4999817907810211,
)  # fmt: skip
SHORT_LOG = (
    -0.10191823542118073, 0.16028398275375366, -0.17138394713401794, 0.1992415487766266, -0.24983185529708862,
    0.3333425223827362,
)  # fmt: skip
SHORT_MILLS = (
    -48.35702133178711, 80.4916000366211, -42.109745025634766, 0.36358508467674255, 3.0253658294677734, 2.7230851650238037,
    1.2980502843856812, 0.4702676236629486,
)  # fmt: skip
LN2 = 0.6931471824645996


class Pieces(NamedTuple):
    """A function of numbers from 0 to 15.5 widths by 16 polynomials: around nodes, whose values are FLOATs but for some hundredths of their ulp."""

    width: float
    rows: tuple[tuple[float, ...], ...]  # nodes, and coefficients from the constant ones on

    @property
    def end(self) -> float:
        return 15.5 * self.width


# sigmoid(-t) to 2^-25, for 16 bits to 2^-20; normal_cdf(-t) to 2^-27 and 2^-21. The nodes and the values there are the same for 16 bits.
SIGMOID = Pieces(0.5, (
    (0.0, 0.49999464, 0.99999267, 1.4999603, 1.9999943, 2.4999526, 2.9999893, 3.499938, 3.9999278, 4.499976, 4.999958, 5.4999943, 5.9998856, 6.499831, 6.999919,
     7.499948),
    (0.5, 0.37754193, 0.26894286, 0.18243144, 0.11920352, 0.075861506, 0.047426358, 0.029313995, 0.017987486, 0.010987202, 0.00669313, 0.004070161, 0.0024729054,
     0.0015014353, 0.000911125, 0.00055280735),
    (-0.25, -0.23500401, -0.19661258, -0.14915021, -0.10499405, -0.07010654, -0.045177102, -0.028454686, -0.017663937, -0.010866483, -0.0066483314, -0.0040535945,
     -0.0024667901, -0.0014991809, -0.00091029477, -0.0005525017),
    (-9.020228e-08, 0.028777223, 0.045428082, 0.0473654, 0.03998161, 0.029735083, 0.020446058, 0.013393248, 0.008514237, 0.0053138398, 0.0032796583, 0.0020102914,
     0.00122729, 0.00074733637, 0.000454316, 0.0002759442),
    (0.020835718, 0.016058534, 0.00588687, -0.0026126667, -0.0064747324, -0.0067691742, -0.005488356, -0.003932718, -0.002631944, -0.0016930236, -0.0010638832,
     -0.00065917766, -0.00040504982, -0.0002476206, -0.0001508911, -9.1781374e-05),
    (-2.0689893e-05, -0.004317761, -0.0051119197, -0.0031166435, -0.00087885506, 0.00038295306, 0.00077529496, 0.0007336379, 0.000559223, 0.00038557532,
     0.00025199162, 0.00015974582, 9.950115e-05, 6.132297e-05, 3.755042e-05, 2.2907361e-05),
    (-0.0020199001, -0.0011129146, 0.00042891369, 0.00099562, 0.00071627944, 0.00029701408, 4.0232506e-05, -5.7965404e-05, -7.4867334e-05, -6.199152e-05,
     -4.4320583e-05, -2.9630752e-05, -1.9023646e-05, -1.1889389e-05, -7.340136e-06, -4.4972157e-06),
))  # fmt: skip
SHORT_SIGMOID = Pieces(0.5, (
    *SIGMOID.rows[:2],
    (-0.2499994, -0.23500265, -0.1966131, -0.14915141, -0.104994915, -0.0701069, -0.04517715, -0.028454617, -0.017663848, -0.010866408, -0.0066482783, -0.004053559,
     -0.0024667673, -0.0014991667, -0.000910286, -0.00055249635),
    (-2.2502309e-05, 0.0287779, 0.045427777, 0.0473646, 0.03998099, 0.02973481, 0.020446021, 0.013393305, 0.008514311, 0.0053139003, 0.0032797023, 0.002010321,
     0.0012273092, 0.0007473486, 0.0004543234, 0.00027594875),
    (0.021100877, 0.015971651, 0.0059203305, -0.0025350745, -0.0064189928, -0.0067460774, -0.005485228, -0.0039372086, -0.002637751, -0.0016978412, -0.001067324,
     -0.0006614761, -0.00040652725, -0.0002485428, -0.00015146087, -9.212989e-05),
    (-0.0012648366, -0.004330749, -0.0051060487, -0.003101215, -0.0008668945, 0.00038819623, 0.00077601214, 0.0007325412, 0.00055778463, 0.00038440945, 0.0002511434,
     0.00015917698, 9.9129604e-05, 6.1085884e-05, 3.7407655e-05, 2.2819773e-05),
))  # fmt: skip
NORMAL = Pieces(0.25, (
    (0.0, 0.24999887, 0.49999872, 0.7499788, 0.9999947, 1.2499914, 1.4999881, 1.7499895, 1.9999877, 2.2499273, 2.4999835, 2.7499928, 2.9999468, 3.249944, 3.4999194,
     3.749994),
    (0.5, 0.4012941, 0.308538, 0.22663374, 0.15865654, 0.10565134, 0.066808745, 0.040060062, 0.022750795, 0.012226781, 0.0062099537, 0.0029798283, 0.0013501337,
     0.00057713874, 0.00023269941, 8.841939e-05),
    (-0.3989423, -0.38666824, -0.35206556, -0.30114222, -0.24197201, -0.18265104, -0.12951991, -0.0862789, -0.053992294, -0.031744845, -0.017529022, -0.009093741,
     -0.0044325553, -0.0020294175, -0.0008729289, -0.0003526036),
    (1.0295497e-06, 0.048333332, 0.08801621, 0.11292506, 0.12098538, 0.114156105, 0.09713915, 0.075493574, 0.053991966, 0.0357118, 0.021911137, 0.0125038605,
     0.006648715, 0.0032977466, 0.0015275903, 0.00066113065),
    (0.06645755, 0.06041863, 0.044010453, 0.021958115, 1.7958594e-06, -0.017123204, -0.026982887, -0.029658282, -0.026995432, -0.021492217, -0.0153375715,
     -0.009946329, -0.005909862, -0.0032342656, -0.0016366537, -0.00076763605),
    (0.00047771435, -0.011835844, -0.020178715, -0.022926344, -0.020167848, -0.013672674, -0.006069491, 0.00039545403, 0.0044980147, 0.00613661, 0.005933242,
     0.0047543286, 0.0033242074, 0.0020781825, 0.001177451, 0.00060947397),
    (-0.013230468, -0.008531389, -0.0046783844, 0.00022171279, 0.003956649, 0.005987647, 0.005874818, 0.004327979, 0.0022392275, 0.00046884187, -0.0006655864,
     -0.0011146233, -0.0011054166, -0.0008651896, -0.00057933613, -0.00034288675),
    (0.00859693, 0.002115301, 0.003418894, 0.0025579156, 0.0021701953, 0.0004711723, -0.00074053725, -0.0014172689, -0.001296513, -0.0009747288, -0.00047407812,
     -0.00013399425, 0.00010872345, 0.0001905956, 0.00018014516, 0.00013261513),
))  # fmt: skip
SHORT_NORMAL = Pieces(0.25, (
    *NORMAL.rows[:2],
    (-0.3989423, -0.38666824, -0.35206556, -0.30114222, -0.241972, -0.18265104, -0.12951991, -0.08627891, -0.053992294, -0.03174485, -0.017529022, -0.009093742,
     -0.004432555, -0.002029417, -0.00087292836, -0.00035260318),
    (7.026601e-07, 0.048333105, 0.08801585, 0.112924784, 0.12098515, 0.11415605, 0.097139224, 0.07549372, 0.053992104, 0.0357119, 0.021911185, 0.0125038745,
     0.006648704, 0.003297727, 0.0015275719, 0.00066111714),
    (0.066476, 0.060418542, 0.04401029, 0.021957975, -1.3825928e-06, -0.017123232, -0.02698281, -0.029656634, -0.026995301, -0.02149134, -0.015337506, -0.009946123,
     -0.0059099724, -0.0032343906, -0.0016367906, -0.00076774205),
    (0.00011745626, -0.011789478, -0.020103937, -0.022870215, -0.020120442, -0.013662235, -0.0060853506, 0.0003646319, 0.004469709, 0.0061155567, 0.0059230383,
     0.004751424, 0.0033265522, 0.00208229, 0.001181326, 0.00061232405),
    (-0.010288395, -0.008525122, -0.0046663876, 0.00023197742, 0.004105439, 0.0059896954, 0.0058692195, 0.0042492407, 0.0022296684, 0.00042553325, -0.0006703719,
     -0.0011244492, -0.0010999531, -0.0008586449, -0.0005722464, -0.00033741596),
))  # fmt: skip


class Term(Value):
    """A value inside a formula, which knows what words mean there."""

    __slots__ = ()
    words: Words

    def __le__(self, other: Any) -> Any:
        is_zero = isinstance(other, (int, float)) and other == 0
        return super().__le__(self.words.zero(self.lanes) if is_zero else other)


class Power(NamedTuple):
    """An exponential: (high + low) * scale, high between 0.35 and 0.71, the scale a power of two or 0; 2^32 times as much is never 0."""

    high: Any
    low: Any
    scale: Any
    raised: Any


class Words:
    """What formulas may say beside Python's operators."""

    def __init__(self, code: Code, zero: Callable[[int], Value | float]) -> None:
        self.code, self.zero = code, zero
        self._term = type("Term", (Term,), {"__slots__": (), "words": self})
        self._functions: dict[type, Any] = {}

    def term(self, value: Value) -> Any:
        """A value for a formula of this code."""
        return value.become(self._term)

    def _value(self, number: Any) -> Any:
        return number if isinstance(number, Value) else self.term(self.code.single(number))

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return condition.choose(self._value(yes), self._value(no))

    def scaled_exp(self, multiplier: Any, factor: Any, x: Any) -> Any:
        return self._function(Exp).scaled(*map(self._value, (multiplier, factor, x)))

    def scaled_expm1(self, multiplier: Any, factor: Any, x: Any) -> Any:
        return self._function(Expm1).scaled(*map(self._value, (multiplier, factor, x)))

    def _function(self, kind: Any) -> Any:
        if kind not in self._functions:
            with self.code.once():  # its constants lie ready before the loop
                self._functions[kind] = kind(self.code)
        return self._functions[kind]

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return fma(self._value(x), y, z)

    def abs(self, x: Any) -> Any:
        return intrinsic("fabs", x)

    def sqrt(self, x: Any) -> Any:
        return intrinsic("sqrt", x)

    def ratio(self, x: Any, y: Any) -> Any:
        return x / y

    def minimum(self, x: Any, y: Any) -> Any:
        return minimum(self._value(x), y)

    def maximum(self, x: Any, y: Any) -> Any:
        return maximum(self._value(x), y)

    def sign(self, x: Any) -> Any:
        size = (x > 0.0).choose(self._value(1.0), x)
        size = (x < 0.0).choose(self._value(-1.0), size)
        return (x == 0.0).choose(self._value(0.0), size)

    # Exponentials.

    def _below(self, x: Any, limit: float) -> Any:
        """x or the limit, whichever is less; the limit for NaN. What is computed of it has no NaN, so that a result has the NaN of x, sign and all: of two operands that are NaN an
        instruction takes the first, and which is first the compiler decides."""
        return (x < limit).choose(x, limit)

    def _rest(self, x: Any, rest: Any) -> Any:
        """What a rounding left of x; nothing where that is infinite."""
        return None if rest is None else (self.abs(x) < LARGE).choose(rest, self._value(0.0))

    def _reduced(self, x: Any, rest: Any, bias: int) -> tuple[Any, Any, Any]:
        """x + rest = n ln 2 + r: n + bias in the low bits of an integer, r, and what rounding left of that."""
        shifted = fma(x, LOG2_E, ROUNDER + bias)
        n = shifted - (ROUNDER + bias)
        head = fma(n, -LN2_HIGH, x)  # exact
        tail = n * -LN2_LOW if rest is None else fma(n, -LN2_LOW, rest)
        r = head + tail
        return shifted.bits_as("i32"), r, tail - (r - head)

    def exp(self, x: Any, rest: Any = None) -> Any:
        within = minimum(maximum(x, -174.0), 174.0)
        bits, r, left = self._reduced(within, self._rest(x, rest), 254)
        value = (fma(r * r, self._polynomial(EXP, r), left) + r) + 1.0
        return self._scaled(value, bits)

    def _short_exp(self, x: Any, bias: int) -> tuple[Any, Any]:
        """exp(x) to 2^-23: a number near 1, and n + bias in the low bits of an integer."""
        shifted = fma(x, LOG2_E, ROUNDER + bias)
        r = fma(shifted - (ROUNDER + bias), -LN2, x)
        return self._polynomial(SHORT_EXP, r), shifted.bits_as("i32")

    def _scaled(self, value: Any, bits: Any) -> Any:
        """value * 2^n with n + 254 in the low bits: in two factors, since one FLOAT does not hold it everywhere."""
        half = (bits << 22) & 0x7F800000
        return value * half.bits_as("f32") * ((bits << 23) - half).bits_as("f32")

    def _falling(self, x: Any, rest: Any = None) -> Power:
        """exp(x + rest), x between LOWEST and 0."""
        bits, r, left = self._reduced(x, rest, 160)
        curve = fma(r * r, self._polynomial(HALF_EXP, r), left * 0.5)
        base = fma(r, 0.5, 0.5)
        curve = curve + fma(r, 0.5, 0.5 - base)
        high = base + curve
        raised = (bits << 23).bits_as("f32")
        return Power(high, curve - (high - base), raised * 2.0**-32, raised)

    def _half_expm1(self, x: Any, rest: Any = None) -> tuple[Any, Any]:
        """Half of exp(x) - 1, and what rounding left of it; x between -60 and 89."""
        # With x = n ln 2 + r it is 2^n (exp(r) - 1) + (2^n - 1), whose two terms have no digits to lose; half of it
        # fits where 2^n does not.
        bits, r, left = self._reduced(x, rest, 126)
        half = (bits << 23).bits_as("f32")
        curve = fma(r * r, self._polynomial(EXP, r), left)
        base, grown = half - 0.5, half * r
        back = base - half
        lost = (half - (base - back)) - (back + 0.5)  # nothing but beyond n = 24 and -24
        value = base + grown
        small = fma(half, curve, (grown - (value - base)) + lost)
        result = value + small
        return result, small - (result - value)

    def expm1(self, x: Any, rest: Any = None) -> Any:
        # Beyond the bounds it is -1 and infinite.
        value, _ = self._half_expm1(minimum(maximum(x, -60.0), 89.0), self._rest(x, rest))
        # So small a number is its own result: -0 and the smallest ones stay what they are.
        return (self.abs(x) < 2.0**-26).choose(x, value * 2.0)

    # Functions by pieces.

    def _piece(self, pieces: Pieces, t: Any, rest: Any = None) -> tuple[Any, Any, Any]:
        """A function of t + rest as a + b c; whatever beyond its end."""
        places = fma(t, 1.0 / pieces.width, ROUNDER).bits_as("i32")
        nodes, last, *others = pieces.rows
        look_up = self.code.lookups(places)
        away = t - look_up(nodes)
        if rest is not None:
            away = away + rest
        value = self.term(look_up(others.pop()))
        while others:
            value = fma(value, away, look_up(others.pop(), value))
        return self.term(look_up(last, value)), away, value

    def _beyond(self, t: Any, pieces: Pieces, near: Any, far: Callable[[], Any]) -> Any:
        """What pieces gave or, from their end on, something else."""
        return self._rarely(t >= pieces.end, near, far)

    def _rarely(self, condition: Any, usual: Any, other: Callable[[], Any]) -> Any:
        """One of two values, the other where a condition holds: of so few numbers that a branch takes less time than computing both for all."""
        some, *more = condition.streams()
        for stream in more:
            some = some | stream
        result = self.code.variable(usual)
        with self.code.when(some.reduce("or") if some.lanes else some, likely=False):
            result.set(condition.choose(other(), usual))
        return self.term(result.get())

    def _sized(self, v: Any, rest: Any) -> tuple[Any, Any, Any]:
        """The size of v, what is to be added to it, and whether v is above 0; of -w by w, so that both share what follows."""
        w, left = v.negative_of(), None if rest is None else rest.negative_of()
        if w is not None and (rest is None or left is not None):
            v, rest, positive, upward = w, left, w < 0.0, w > 0.0
        else:
            positive = upward = v > 0.0
        return self.abs(v), None if rest is None else upward.choose(rest, -rest), positive

    SIGMOID, NORMAL = SIGMOID, NORMAL

    def _far_sigmoid(self, size: Any, rest: Any) -> tuple[Any, Any, Any]:
        """sigmoid(-size - rest) from 7.75 on: a number, a power of two, which may be 0, and 2^32 times that."""
        rest = None if rest is None else -self._rest(size, rest)
        power = self._falling(maximum(-size, LOWEST), rest)
        e = power.high * power.scale
        return fma(power.high, fma(e, e, -e), power.low) + power.high, power.scale, power.raised

    def sigmoid(self, x: Any, rest: Any = None) -> Any:
        size, rest, positive = self._sized(x, rest)
        last, away, slope = self._piece(self.SIGMOID, size, rest)
        low = fma(away, slope, last)

        def far() -> Any:
            value, scale, _ = self._far_sigmoid(size, rest)
            return positive.choose(fma(-value, scale, 1.0), value * scale)

        return self._beyond(size, self.SIGMOID, positive.choose(1.0 - low, low), far)

    def gate(self, x: Any, v: Any, rest: Any = None) -> Any:
        v = self._value(v)
        size, rest, positive = self._sized(v, rest)
        near_size = self._below(size, self.SIGMOID.end) if x is v else size
        last, away, slope = self._piece(self.SIGMOID, near_size, rest)
        low = fma(away, slope, last)
        near = positive.choose(fma(-low, x, x), low * x)

        def far() -> Any:
            value, scale, raised = self._far_sigmoid(size, rest)
            is_tiny = size > 80.0
            tiny = (value * x) * is_tiny.choose(raised, scale)
            below = is_tiny.choose(tiny * 2.0**-32, tiny)
            return positive.choose(fma(-value, scale, 1.0) * x, below)

        result = self._beyond(size, self.SIGMOID, near, far)
        if x is v:
            return result
        # The difference above has lost infinity and the sign of a 0; of two NaNs it has either, by the order that the compiler gives them.
        x = self._value(x)
        lost = (self.abs(x) == math.inf) & (size < self.SIGMOID.end)
        return (v == v).choose(lost.choose(x, self._signed(result, x)), v)

    def scaled_gate(self, x: Any, factor: Any) -> Any:
        inside = self.where(factor == 0.0, 0.0, x)
        v = factor * inside
        return self.gate(x, v, self.fma(inside, factor, -v))

    def _softened(self, x: Any, rest: Any = None) -> tuple[Any, Any]:
        """log1p(exp(-|x|)), and what rounding left of it."""
        power = self._falling(-self._below(self.abs(x), -LOWEST), rest)
        e, lost = power.high * power.scale, power.low * power.scale
        below = fma(e, 0.5, 1.0)
        inverse = 1.0 / below
        s = e * inverse
        error = fma(-s, fma(e, 0.5, 1.0 - below), fma(-s, below, e)) + lost
        square = s * s
        return s, fma(error, inverse, s * square * self._polynomial(LOG1P, square))

    def softplus(self, x: Any, rest: Any = None) -> Any:
        above, rest = x > 0.0, self._rest(x, rest)
        value, left = self._softened(x, None if rest is None else above.choose(-rest, rest))
        if rest is not None:
            left = above.choose(left + rest, left)
        return self._sum(maximum(x, 0.0), value, left)

    def softened(self, x: Any) -> Any:
        return self.softplus(x)

    def log_sigmoid(self, x: Any) -> Any:
        value, left = self._softened(x)
        return self._sum(minimum(x, 0.0), -value, -left)

    def _sum(self, x: Any, y: Any, left: Any) -> Any:
        """x + y + left, where left is less than the others."""
        total = x + y
        grown = total - x
        left = left + ((x - (total - grown)) + (y - grown))
        return (self.abs(total) < math.inf).choose(total + left, total)

    def tanh(self, x: Any) -> Any:
        # m / (1 + m) with 2 m = exp(-2 |x|) - 1, which has all its digits near 0 as well.
        m, lost = self._half_expm1(maximum(self.abs(x) * -2.0, -60.0))
        below = m + 1.0
        inverse = 1.0 / below
        left = (m - (below - 1.0)) + lost
        value = m * inverse
        error = fma(-value, left, fma(-value, below, m)) + lost
        return self._signed(fma(error, inverse, value), x)

    def _signed(self, size: Any, x: Any) -> Any:
        """A number with the sign of another."""
        sign = x.bits_as("i32") & -(1 << 31)
        return ((size.bits_as("i32") & 0x7FFFFFFF) | sign).bits_as("f32")

    def mish(self, x: Any) -> Any:
        # With e = exp(-|x|): x - x c, c = 2 e^2 / (2 e^2 + 2 e + 1), or below 0 x e - x e c, c = e (e + 1) / (e (e + 1) + e + 2).
        power = self._falling(maximum(-self.abs(x), LOWEST))
        below = x < 0.0
        e = power.high * power.scale
        twice = e + e
        upper = below.choose(e + 1.0, twice) * e
        share = upper / (upper + below.choose(e + 2.0, twice + 1.0))
        value = below.choose(fma(x, power.high, x * power.low), x)
        far = x < -80.0
        scale = below.choose(far.choose(power.raised, power.scale), self._value(1.0))
        result = fma(-value, share, value) * scale
        result = far.choose(result * 2.0**-32, result)
        return ((x > 20.0) | (x == 0.0)).choose(x, result)  # infinity and -0 stay what they are

    # Logarithms.

    def _mantissa(self, x: Any) -> tuple[Any, Any]:
        """x = 2^n (1 + f) of a positive normal number: n as an integer, f between sqrt(1/2) - 1 and sqrt(2) - 1."""
        bits = x.bits_as("i32") - HALF_ROOT_BITS
        return bits.shifted_down(23), ((bits & 0x7FFFFF) + HALF_ROOT_BITS).bits_as("f32") - 1.0

    def _log(self, n: Any, f: Any, left: Any = 0.0) -> Any:
        """n ln 2 + log(1 + f) + left."""
        n = n.to("f32")
        square = f * f
        small = fma(n, LOG_LN2_LOW, fma(square * f, self._polynomial(LOG, f), left))
        small = fma(square, -0.5, small)
        whole = n * LOG_LN2_HIGH
        large = whole + f
        return large + (small + (f - (large - whole)))

    def _defined(self, x: Any, value: Any) -> Any:
        """A logarithm of x also where x is 0, infinite or negative."""

        def special() -> Any:
            end = (x == 0.0).choose(self._value(-math.inf), x)
            return (x >= 0.0).choose(end, self._value(math.nan))

        ordinary = (x.bits_as("i32") - 1).below(0x7F7FFFFF)  # above 0 and finite
        return self._rarely(~ordinary, value, special)

    def log(self, x: Any) -> Any:
        tiny = x < 2.0**-126
        n, f = self._mantissa(tiny.choose(x * 2.0**23, x))
        return self._defined(x, self._log(tiny.choose(n - 23, n), f))

    def low_log(self, x: Any) -> Any:
        return self.log(x)

    def low_log1m(self, x: Any) -> Any:
        return self.log1p(-x)

    def log1p(self, x: Any) -> Any:
        above = x + 1.0
        n, f = self._mantissa(above)
        # What the sum lost, in units of 2^n: where n is 0, f becomes x again.
        unit = intrinsic("umin", 127 - n, 254) << 23  # 2^-n, whatever it is where nothing is lost
        lost = (x - (above - 1.0)) * unit.bits_as("f32")
        whole = f + lost
        value = self._defined(above, self._log(n, whole, lost - (whole - f)))
        return (self.abs(x) < 2.0**-26).choose(x, value)

    def logit(self, x: Any) -> Any:
        """log(x / (1 - x)) = n ln 2 + log((1 + e) / (1 - e)), e = (x - 2^n (1 - x)) / (x + 2^n (1 - x)), with n = 0 where the result is less than
        0.55 or so: there the denominator is 1, and nothing is rounded but the sum."""
        below = 1.0 - x
        apart = x.bits_as("i32") - below.bits_as("i32")  # 2^23 log2(x / (1 - x)), to a twelfth
        nearest = (apart + LOGIT_NEAR).below(2 * LOGIT_NEAR).choose(0, apart + 0x400000)
        power = ((nearest & -0x800000) + (127 << 23)).bits_as("f32")
        n = nearest.shifted_down(23).to("f32")
        less, whole = fma(x - (1.0 - below), power, fma(-below, power, x)), fma(below, power, x)
        share = 2.0 / whole
        twice = less * share
        left = fma(fma(twice, -0.5 * whole, less), share, n * LOG_LN2_LOW)
        square = twice * twice
        small = fma(twice * square, self._polynomial(LOGIT, square), left)
        high = n * LOG_LN2_HIGH
        large = high + twice
        value = large + (small + (twice - (large - high)))

        def special() -> Any:
            end = (x == 1.0).choose(self._value(math.inf), self._value(math.nan))
            return (x < 0.5).choose(self.log(x), end)

        ordinary = (x.bits_as("i32") - LOGIT_LEAST).below((127 << 23) - LOGIT_LEAST)  # below 1
        return self._rarely(~ordinary, value, special)

    # The normal distribution.

    def _bell(self, square: Any, rest: Any) -> tuple[Any, Any, Any]:
        """exp(-(square + rest) / 2) = s (1 + (r + curve) / 2) for squares up to 210: r, curve and s, a power of two."""
        shifted = fma(square, -0.5 * LOG2_E, ROUNDER + 159)
        n = shifted - (ROUNDER + 159)
        head = fma(n, -2.0 * LN2_HIGH, -square)
        tail = fma(n, -2.0 * LN2_LOW, -rest)
        r = head + tail
        curve = fma(r * r, self._polynomial(BELL, r), tail - (r - head))
        return r, curve, (shifted.bits_as("i32") << 23).bits_as("f32") * 2.0**-32

    def _tail(self, r: Any, curve: Any, t: Any, rest: Any = 0.0) -> tuple[Any, Any]:
        """exp(t^2 / 2) normal_cdf(-t) for t + rest from 0 to 14.5, times 1 + (r + curve) / 2, and what rounding left of it."""
        below = t + 2.875
        u = 1.0 / below
        # How far off u is, of itself, and u P(u) for it.
        off = fma(-u, (t - (below - 2.875)) + rest, fma(-u, below, 1.0))
        v = u - MILLS_CENTRE
        series = self._polynomial(MILLS, v)
        ratio = fma(v, series, MILLS_LAST)
        left = fma(v, series, MILLS_LAST - ratio)
        left = fma(ratio, off * self._polynomial(MILLS_SLOPE, v), left)
        product = u * ratio
        left = fma(u, left, fma(u, ratio, -product))
        half, q = product * 0.5, r + curve
        value = fma(half, q, product)
        lost = fma(half, curve, fma(half, r, product - value))
        return value, fma(left, fma(q, 0.5, 1.0), lost)

    def _normal_tail(self, x: Any, factor: Any = 1.0) -> Any:
        """normal_cdf(-|x|) times a factor."""
        size = minimum(self.abs(x), 14.46)
        square = size * size
        r, curve, scale = self._bell(square, fma(size, size, -square))
        value, left = self._tail(r, curve, size)
        return fma(value, factor, left * factor) * scale

    def normal_cdf(self, x: Any) -> Any:
        def whole(tail: Any) -> Any:
            return (x > 0.0).choose(1.0 - tail, tail)

        size = self.abs(x)
        last, away, slope = self._piece(self.NORMAL, size)
        near = whole(fma(away, slope, last))
        return self._beyond(size, self.NORMAL, near, lambda: whole(self._normal_tail(x)))

    def normal_pdf(self, x: Any) -> Any:
        size = minimum(self.abs(x), 14.46)
        square = size * size
        r, curve, scale = self._bell(square, fma(size, size, -square))
        # 1 + q / 2 times 1 / sqrt(2 pi), half of which is added to one part after the other.
        return (fma(r, DENSITY / 2, fma(curve, DENSITY / 2, DENSITY_LEFT)) + DENSITY) * scale

    def _tanh_argument(self, x: Any) -> tuple[Any, Any]:
        """v = sqrt(8 / pi) (x + 0.044715 x^3), and what rounding left of it."""
        square = x * x
        slope = fma(square, TANH_CUBE, TANH_SCALE)
        v = x * slope
        above = slope - TANH_SCALE
        left = fma(square, TANH_CUBE, -above) - ((slope - above) - TANH_SCALE)
        left = left + fma(
            fma(x, x, -square), TANH_CUBE, fma(square, TANH_CUBE_LEFT, TANH_SCALE_LEFT)
        )
        return v, fma(x, left, fma(x, slope, -v))

    def gelu_tanh(self, x: Any) -> Any:
        v, rest = self._tanh_argument(x)
        return self.gate(x, v, rest)

    def gelu_tanh_slope(self, x: Any) -> Any:
        v, rest = self._tanh_argument(x)
        slope = x * fma(x * x, 3.0 * TANH_CUBE, TANH_SCALE)
        bent = self.gate(slope * self.sigmoid(-v, -rest), v, rest)
        return self.sigmoid(v, rest) + (bent == bent).choose(bent, self._value(0.0))

    def gelu(self, x: Any) -> Any:
        def whole(below: Any) -> Any:
            return (x >= 0.0).choose(x - below, -below)

        def far() -> Any:
            factor = self.abs(minimum(x, 14.46))  # infinity times nothing is NaN, but only below 0
            return whole(self._normal_tail(x, factor))

        size = self.abs(x)
        below = self._times(size, *self._piece(self.NORMAL, size))
        near = (x < -0.0).choose(self._value(-0.0), x) - below
        return self._beyond(size, self.NORMAL, near, far)

    def gelu_slope(self, x: Any) -> Any:
        return self.normal_cdf(x) + x * self.normal_pdf(x)

    def _times(self, factor: Any, last: Any, away: Any, slope: Any) -> Any:
        """A piece times a factor."""
        value = fma(away, slope, last)
        return fma(factor, value, factor * fma(away, slope, last - value))

    def _erfc(self, size: Any) -> Any:
        """Of numbers from 0 to 10.225."""
        square = size * size
        r, curve, scale = self._bell(square * 2.0, fma(size, size, -square) * 2.0)
        t = size * ROOT_2
        value, left = self._tail(r, curve, t, fma(size, ROOT_2_LEFT, fma(size, ROOT_2, -t)))
        return (value + left) * (scale * 2.0)

    def erf(self, x: Any) -> Any:
        size = self.abs(x)
        near = fma(self._polynomial(ERF, x * x), x, x)
        within = minimum(size, 4.0)
        slope, last = self._polynomial(LOG_ERFC[:-1], within), LOG_ERFC[-1]
        power = fma(within, slope, last)
        bits, r, _ = self._reduced(power, fma(within, slope, -power) + last, 127)
        value = fma(r * r, self._polynomial(EXP, r), r) + 1.0
        far = fma(-value, (bits << 23).bits_as("f32"), 1.0)
        return (size < 1.0).choose(near, self._signed(far, x))

    def erfc(self, x: Any) -> Any:
        tail = self._erfc(minimum(self.abs(x), 10.225))
        return (x < 0.0).choose(2.0 - tail, tail)

    def erfinv(self, x: Any) -> Any:
        below = fma(-x, x, 1.0)
        w = -self._log(*self._mantissa(below))
        central = w < 5.0
        v = central.choose(w - 2.5, self.sqrt(w) - 3.0)
        value = self._polynomial(INVERSE, v)
        tail = self._polynomial(INVERSE_TAIL, v)
        (last, left), (tail_last, tail_left) = INVERSE_LAST, INVERSE_TAIL_LAST
        value = fma(v, value, left) + last
        tail = fma(v, tail, tail_left) + tail_last
        special = (below == 0.0).choose(x * math.inf, self._value(math.nan))
        return (below > 0.0).choose(x * central.choose(value, tail), special)

    def _polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        value = fma(x, coefficients[0], coefficients[1])
        for coefficient in coefficients[2:]:
            value = fma(value, x, coefficient)
        return value


class ShortWords(Words):
    """Words whose results are rounded to 16 bits: right to 2^-20, in half the operations."""

    def _with(self, x: Any, rest: Any) -> Any:
        return x if rest is None else x + self._rest(x, rest)

    def exp(self, x: Any, rest: Any = None) -> Any:
        x = self._with(x, rest)
        value, bits = self._short_exp(minimum(maximum(x, -174.0), 174.0), 254)
        return self._scaled(value, bits)

    def _half_expm1(self, x: Any, rest: Any = None) -> tuple[Any, Any]:
        x = self._with(x, rest)
        shifted = fma(x, LOG2_E, ROUNDER + 126)
        n = shifted - (ROUNDER + 126)
        r = fma(n, -LN2, x)
        half = (shifted.bits_as("i32") << 23).bits_as("f32")
        value = fma(r * r, self._polynomial(SHORT_EXPM1, r), r)
        return fma(half, value, half - 0.5), self._value(0.0)

    SIGMOID, NORMAL = SHORT_SIGMOID, SHORT_NORMAL

    def _times(self, factor: Any, last: Any, away: Any, slope: Any) -> Any:
        return fma(away, slope, last) * factor

    def _falling(self, x: Any, rest: Any = None) -> Power:
        value, scale, raised = self._short_power(self._with(x, rest))
        return Power(value, self._value(0.0), scale, raised)

    def _short_power(self, x: Any) -> tuple[Any, Any, Any]:
        """exp(x), x between LOWEST and 0, as a number near 1 and a power of two, and 2^32 times that."""
        value, bits = self._short_exp(x, 160)
        twice = (bits << 23).bits_as("f32")
        return value, twice * 2.0**-33, twice * 0.5

    def _softened(self, x: Any, rest: Any = None) -> tuple[Any, Any]:
        value, scale, _ = self._short_power(-self._below(self.abs(self._with(x, rest)), -LOWEST))
        e = value * scale
        return fma(e * e, self._polynomial(SHORT_LOG1P, e), e), self._value(0.0)

    def _sum(self, x: Any, y: Any, left: Any) -> Any:
        return x + y

    def tanh(self, x: Any) -> Any:
        m, _ = self._half_expm1(maximum(self.abs(x) * -2.0, -60.0))
        return self._signed(m / (m + 1.0), x)

    def _log(self, n: Any, f: Any, left: Any = 0.0) -> Any:
        square = f * f
        small = fma(square * f, self._polynomial(SHORT_LOG, f), left)
        return fma(n.to("f32"), LN2, fma(square, -0.5, small) + f)

    def _normal_tail(self, x: Any, factor: Any = 1.0) -> Any:
        size = minimum(self.abs(x), 14.46)
        return self._short_tail(size, size * size * -0.5, factor)

    def _short_tail(self, t: Any, power: Any, factor: Any) -> Any:
        u = 1.0 / (t + 2.5)
        value, scale, _ = self._short_power(power)
        return u * self._polynomial(SHORT_MILLS, u - 0.0625) * value * factor * scale

    def normal_pdf(self, x: Any) -> Any:
        size = minimum(self.abs(x), 14.46)
        value, scale, _ = self._short_power(size * size * -0.5)
        return value * DENSITY * scale

    def _erfc(self, size: Any) -> Any:
        return self._short_tail(size * ROOT_2, -(size * size), 2.0)


class Words64(Words):
    """The same in FLOAT64, for what is computed once a row: to 1e-15, which FLOAT shows nothing of. Words that are not among `WIDE` have FLOAT alone."""

    WIDE = frozenset({"abs", "exp", "expm1", "fma", "log", "log1p", "maximum", "minimum", "sign", "sqrt", "tanh", "where"})  # fmt: skip

    def _value(self, number: Any) -> Any:
        return number if isinstance(number, Value) else self.term(self.code.double(number))

    def exp(self, x: Any, rest: Any = None) -> Any:
        return power64(self.code, x if rest is None else x + rest)

    def expm1(self, x: Any, rest: Any = None) -> Any:
        return expm1_64(self.code, x if rest is None else x + rest, self.exp(x, rest))

    def log(self, x: Any) -> Any:
        # x = 2^n (1 + f), f between sqrt(1/2) - 1 and sqrt(2) - 1; log(1 + f) = 2 atanh(f / (2 + f)).
        tiny = x < 2.0**-1022
        bits = tiny.choose(x * 2.0**54, x).bits_as("i64") - HALF_ROOT_BITS_64
        n = bits.shifted_down(52).to("f64") - tiny.choose(self._value(54.0), self._value(0.0))
        f = ((bits & ((1 << 52) - 1)) + HALF_ROOT_BITS_64).bits_as("f64") - 1.0
        s = f / (f + 2.0)
        value = self._polynomial(tuple(2 / number for number in range(21, 0, -2)), s * s)
        value = fma(n, math.log(2), value * s)
        value = (x < math.inf).choose(value, x)
        value = (x == 0.0).choose(self._value(-math.inf), value)
        return (x >= 0.0).choose(value, self._value(math.nan))

    def tanh(self, x: Any) -> Any:
        twice = self.expm1(minimum(maximum(x, -20.0), 20.0) * 2.0)
        return twice / (twice + 2.0)

    def log1p(self, x: Any) -> Any:
        above = x + 1.0
        kept = above - 1.0
        # What the sum lost, to first order; nothing for -1 and infinity, whose quotient would be NaN.
        lost = (kept == x).choose(self._value(0.0), (x - kept) / above)
        return (above == 1.0).choose(x, self.log(above) + lost)
