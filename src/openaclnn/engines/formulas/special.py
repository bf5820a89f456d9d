"""Functions that NumPy lacks, in float64, within 6 of its ulp: erf and its relatives, and pieces of them that do not cancel."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Chebyshev series, computed with 40 digits: of exp(x^2) erfc(x) (1 + 2x) in (x - 3.75) / (x + 3.75) for x from 0 on,
# and of erf(x) / x in 2 x^2 - 1 for x up to 1.
ERFCX = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189, -0.026658668435305753,
    0.009074997670705265, -0.002413163540417608, 0.0004907758365258086, -6.916973302501207e-05, 4.13902798607301e-06,
    7.74038306619849e-07, -2.1886401049234397e-07, 1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777938e-13, -9.654696748433504e-13, 3.2525481481363487e-14,
    3.3478119482752794e-14, -1.8645628782428707e-15, -1.250795046938718e-15, 7.418231959528878e-17, 5.068131210430141e-17,
    -2.2366432315010394e-18, -2.1830526575951165e-18,
)  # fmt: skip
ERF = (
    0.9754769393826541, -0.14226120510371365, 0.010035582187599796, -0.0005768764699767485, 2.741993125219606e-05,
    -1.1043175507344507e-06, 3.8488755420345036e-08, -1.1808582533875466e-09, 3.2334215826050907e-11,
    -7.991015947004549e-13, 1.799072511396137e-14, -3.7186354877527125e-16, 7.103598527027531e-18,
)  # fmt: skip
# erfinv(x) / x in w = -log(1 - x^2): of w - 2.5 below 5, else of sqrt(w) - 3 (M. Giles, 2010). It is where Newton's method begins.
INVERSE_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
INVERSE_TAIL = (  # up to w = 16
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
BEYOND = 40.0  # from here on exp(-x^2) and exp(-x^2 / 2) are 0 in float64


def _series(coefficients: tuple[float, ...], x: Array) -> Array:
    """Chebyshev's, by Clenshaw's recurrence."""
    last = before = np.zeros_like(x)
    for coefficient in coefficients[:0:-1]:
        last, before = 2.0 * x * last - before + coefficient, last
    return x * last - before + coefficients[0]


def _gaussian(x: Array, halved: bool) -> Array:
    """exp(-x^2), or exp(-x^2 / 2): of the head's exact square, and of the rest."""
    x = np.minimum(np.abs(x), BEYOND)
    head = x.astype(np.float32).astype(np.float64)
    rest = (x - head) * (x + head)
    square = head * head
    return (
        np.exp(-0.5 * square) * np.exp(-0.5 * rest) if halved else np.exp(-square) * np.exp(-rest)
    )


def _scaled_erfc(x: Array) -> Array:
    """exp(x^2) erfc(x) for x from 0 on."""
    x = np.minimum(x, BEYOND)
    return _series(ERFCX, (x - 3.75) / (x + 3.75)) / (1.0 + 2.0 * x)


def erf(x: Array) -> Array:
    size = np.abs(x)
    near = x * _series(ERF, 2.0 * np.minimum(size, 1.0) ** 2 - 1.0)
    far = np.copysign(1.0 - _gaussian(size, False) * _scaled_erfc(size), x)
    return np.where(size > 1.0, far, near)


def erfc(x: Array) -> Array:
    """1 - erf(x), exact to the last places where x is large."""
    size = np.abs(x)
    tail = _gaussian(size, False) * _scaled_erfc(size)
    return np.where(size < 0.4, 1.0 - erf(x), np.where(x < 0, 2.0 - tail, tail))


def normal_pdf(x: Array) -> Array:
    """exp(-x^2 / 2) / sqrt(2 pi), the derivative of `normal_cdf`, with whom it shares its exponential."""
    return _gaussian(x, True) * 0.3989422804014327


def normal_cdf(x: Array) -> Array:
    """(1 + erf(x / sqrt(2))) / 2, exact to the last places where x is far below 0."""
    size = np.abs(x)
    tail = 0.5 * _gaussian(size, True) * _scaled_erfc(size * 0.7071067811865476)
    return np.where(x > 0, 1.0 - tail, tail)


def erfinv(x: Array) -> Array:
    """What erf gives x of: infinite for -1 and 1, NaN outside of them; within 2 ulp."""
    size = np.abs(x)
    inside = np.where(size < 1.0, size, 0.5)  # what is not has its result by itself
    missing = 1.0 - inside
    w = -np.log(missing * (1.0 + inside))
    tail = np.polyval(INVERSE_TAIL, np.sqrt(np.maximum(w, 5.0)) - 3.0)
    start = inside * np.where(w < 5.0, np.polyval(INVERSE_CENTRAL, w - 2.5), tail)
    far = -np.log(np.minimum(missing, 1e-7))
    start = np.where(w < 16.0, start, np.sqrt(far - 0.5 * np.log(np.pi * far)))
    for _ in range(2):
        off = np.where(inside < 0.5, erf(start) - inside, missing - erfc(start))
        step = off * 0.8862269254527580 / _gaussian(start, False)
        start = start - step / (1.0 + start * step)
    outside = np.where(size == 1.0, np.copysign(np.inf, x), np.nan)
    return np.where(size < 1.0, np.copysign(start, x), outside)


def sigmoid(x: Array) -> Array:
    """Also of complex numbers."""
    negative = np.real(x) < 0
    power = np.exp(np.where(negative, x, -x))
    return np.where(negative, power, 1.0) / (1.0 + power)


def log_sigmoid(x: Array) -> Array:
    """log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|))."""
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
