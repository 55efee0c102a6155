"""A second implementation of the tree, by the text of docs/tree.md alone: it shows that nothing is missing there.

It imports nothing of the library and is as slow as it is plain: accumulators are tuples of numbers, one after the
other, and results are rounded by arithmetic of fractions. Who changes it looks at the page, not at ``lowlevel_reduce``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

__all__ = ["results"]

Accumulator = tuple[Any, ...]
Combine = Callable[[Accumulator, Accumulator], Accumulator]
MASK = (1 << 64) - 1


class Format(NamedTuple):
    """A floating-point type: its bits, those of its fraction, its bias, and the exponents of the generator."""

    bits: int
    fraction: int
    bias: int
    low: int
    high: int


FORMATS = {
    "float8_e4m3fn": Format(8, 3, 7, 1, 14),
    "float8_e5m2": Format(8, 2, 15, 1, 25),
    "float16": Format(16, 10, 15, 1, 16),
    "bfloat16": Format(16, 7, 127, 87, 167),
    "float32": Format(32, 23, 127, 87, 167),
    "float64": Format(64, 52, 1023, 993, 1053),
}
PARTS = {"complex64": "float32", "complex128": "float64"}
FEW = (-0.0, 0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)


# --- Types


def size_of(dtype: str) -> int:
    """Return the bytes of an element."""
    if dtype in PARTS:
        return 2 * size_of(PARTS[dtype])
    return 1 if dtype == "bool" else FORMATS[dtype].bits // 8 if dtype in FORMATS else int(dtype.lstrip("uint")) // 8


def is_integer(dtype: str) -> bool:
    """Tell whether a type is of integers, or bool."""
    return dtype not in FORMATS and dtype not in PARTS


def number_of(dtype: str, word: int) -> Any:
    """Return the value of an element's bits: a float64, or an int."""
    if is_integer(dtype):
        bits = 8 * size_of(dtype)
        return int(word != 0) if dtype == "bool" else word - (1 << bits) * (dtype[0] == "i" and word >> (bits - 1))
    form = FORMATS[dtype]
    sign, exponent = -1.0 if word >> (form.bits - 1) else 1.0, word >> form.fraction & mask_of_exponent(form)
    fraction = word & ((1 << form.fraction) - 1)
    if dtype == "float8_e4m3fn":
        if word & 0x7F == 0x7F:
            return np.float64(np.nan)
    elif exponent == mask_of_exponent(form):
        return np.float64(np.nan if fraction else sign * math.inf)
    whole = fraction + (1 << form.fraction if exponent else 0)
    return np.float64(math.copysign(math.ldexp(whole, max(exponent, 1) - form.bias - form.fraction), sign))


def mask_of_exponent(form: Format) -> int:
    """Return the largest biased exponent."""
    return (1 << (form.bits - form.fraction - 1)) - 1


def bytes_of(dtype: str, word: int) -> str:
    """Return an element's bits as a vector says them."""
    return word.to_bytes(size_of(dtype), "little").hex()


# --- Elements


def words(seed: int, count: int) -> list[int]:
    """Return w(seed, 0) and so on."""
    found = []
    for k in range(count):
        z = (seed + (k + 1) * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        found.append(z ^ (z >> 31))
    return found


def filled(dtype: str, fill: str, w: int) -> int:
    """Return the bits of an element, or of a part of a complex one, that a word makes."""
    if dtype == "bool":
        return {"any": w >> 63, "near one": 1, "few": w >> 63, "zeros": 0}[fill]
    if is_integer(dtype):
        top = w >> (64 - 8 * size_of(dtype))
        return {"any": top, "near one": top | 1, "few": w >> 61, "zeros": 0}[fill]
    form = FORMATS[dtype]
    if fill in ("few", "zeros"):
        return rounded(dtype, np.float64(-0.0 if fill == "zeros" else FEW[w >> 61]))
    low, high = (form.low, form.high) if fill == "any" else (form.bias - 1, form.bias)
    exponent = low + (((w >> 52) % 2048) * (high - low + 1) >> 11)
    return w >> 63 << (form.bits - 1) | exponent << form.fraction | w % (1 << form.fraction)


def elements(vector: dict[str, Any], seed: int, *, replaced: bool) -> list[Any]:
    """Return the values of an array; those of complex elements are pairs."""
    dtype, count = vector["dtype"], math.prod(vector["shape"])
    part = PARTS.get(dtype, dtype)
    parts = 2 if dtype in PARTS else 1
    bits = [filled(part, vector["fill"], w) for w in words(seed, count * parts)]
    if replaced:
        for index, text in vector.get("set", {}).items():
            raw, size = bytes.fromhex(text), size_of(part)
            for k in range(parts):
                bits[int(index) * parts + k] = int.from_bytes(raw[k * size : (k + 1) * size], "little")
    values = [number_of(part, each) for each in bits]
    return values if parts == 1 else list(zip(values[::2], values[1::2], strict=True))


def rows_of(vector: dict[str, Any]) -> list[list[int]]:
    """Return the places of each row's elements in the array, in the row's order."""
    if "offsets" in vector:
        return [list(range(begin, end)) for begin, end in itertools.pairwise(vector["offsets"])]
    shape = vector["shape"]
    axes = sorted(vector.get("axis", range(len(shape))))
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]

    def places(among: list[int]) -> list[int]:
        return [
            sum(i * strides[axis] for i, axis in zip(index, among, strict=True))
            for index in itertools.product(*(range(shape[axis]) for axis in among))
        ]

    return [[begin + step for step in places(axes)] for begin in places(kept)]


# --- The order


def fold(found: list[Accumulator], combine: Combine) -> Accumulator:
    """Fold present accumulators: adjacent pairs, and an odd one at the end stays."""
    while len(found) > 1:
        pairs = [combine(a, b) for a, b in zip(found[::2], found[1::2], strict=False)]
        found = pairs + (found[-1:] if len(found) % 2 else [])
    return found[0]


def root_of(found: list[Accumulator], v: int, combine: Combine) -> Accumulator:
    """Fold a row: slots, steps, lanes, leaves."""
    leaves = []
    for leaf in range(0, len(found), 256 * v):
        lanes = []
        for lane in range(leaf, leaf + 32 * v, v):
            vectors = [found[step : step + v] for step in range(lane, lane + 256 * v, 32 * v)]
            steps = [fold(vector, combine) for vector in vectors if vector]
            if steps:
                lanes.append(fold(steps, combine))
        leaves.append(fold(lanes, combine))
    return fold(leaves, combine)


# --- Rounding


def rounded(dtype: str, x: Any, low: float = 0.0) -> int:
    """Return the bits of a result: a float, a bool or an integer, and the side on which the true value lies."""
    if dtype == "bool":
        return int(x != 0)
    if is_integer(dtype):
        return _integer(dtype, x)
    form = FORMATS[dtype]
    infinite = mask_of_exponent(form) << form.fraction
    if x != x:
        return 0x7F if dtype == "float8_e4m3fn" else infinite | 1 << (form.fraction - 1)
    sign = int(math.copysign(1.0, x) < 0) << (form.bits - 1)
    if not isinstance(x, int) and math.isinf(x):
        return sign | infinite
    exact = abs(Fraction(x if isinstance(x, int) else float(x)))
    side = 0 if low == 0.0 or low != low or dtype == "float64" else -1 if (low < 0) != bool(sign) else 1
    return sign | min(_nearest(form, exact, side), infinite)


def _nearest(form: Format, exact: Fraction, side: int) -> int:
    """Return the bits of the number nearest to a magnitude, plus less than anything on one side, ties to even."""
    if exact == 0:
        return 0
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    exponent = max(exponent, 1 - form.bias)  # of the last place of subnormal numbers
    units = exact / Fraction(2) ** (exponent - form.fraction)
    whole, rest = divmod(units, 1)
    half = Fraction(1, 2)
    up = rest > half or (rest == half and (side > 0 or (side == 0 and whole % 2 == 1)))
    whole = int(whole) + up
    # The exponent field grows by itself where the significand overflows, or a subnormal number becomes a normal one.
    return whole + ((exponent + form.bias - 1) << form.fraction)


def _integer(dtype: str, x: Any) -> int:
    bits = 8 * size_of(dtype)
    if not isinstance(x, int):
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)
        x = 0 if x != x else least if x <= least else most if x >= most + 1 else math.trunc(x)
    return int(x) % (1 << bits)


def quotient(a: Any, c: Any, n: Any) -> tuple[Any, Any]:
    """Return a quotient of a pair of float64."""
    q = a / n
    h, l = two_product(q, n)  # noqa: E741 - the page's name
    rest = (((a - h) - l) + c) / n
    rest = rest if np.isfinite(rest) else np.float64(0.0)
    return (q, rest) if c == 0.0 else (q + rest, rest - ((q + rest) - q))


def quotient_of(total: Any, n: Any) -> tuple[Any, Any]:
    """Return the quotient of a float or of an integer of 64 bits."""
    if not isinstance(total, int):
        return quotient(np.float64(total), np.float64(0.0), n)
    e = total % 2048
    f = np.float64(total - e)
    a = f + np.float64(e)
    return quotient(a, np.float64(e) - (a - f), n)


def root(x: Any) -> tuple[Any, Any]:
    """Return a root."""
    r = np.sqrt(x)
    h, l = two_product(r, r)  # noqa: E741
    rest = (x - h) - l
    return r, rest if np.isfinite(rest) else np.float64(0.0)


def two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """Return TwoProduct(x, y): the error by fractions."""
    high = x * y
    if not np.isfinite(high) or abs(high) < 2.0**-900:
        return high, np.float64(0.0)
    return high, np.float64(float(Fraction(float(x)) * Fraction(float(y)) - Fraction(float(high))))


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return TwoSum(a, b)."""
    large, small = (a, b) if abs(a) >= abs(b) else (b, a)
    high = large + small
    return high, small - (high - large)


# --- Operators


def add(a: Accumulator, b: Accumulator) -> Accumulator:
    """Add field by field: integers modulo 2^64."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def add_compensated(x: Accumulator, y: Accumulator) -> Accumulator:
    """Add pairs of float64."""
    (sh, sl), (th, tl) = two_sum(x[0], y[0]), two_sum(x[1], y[1])
    c = sl + th
    v = sh + c
    w = tl + (c - (v - sh))
    high = v + w
    low = w - (high - v)
    if high == 0:
        high = sh
    return (high, low) if np.isfinite(v) else (v if np.isfinite(sh) else sh, np.float64(0.0))


def multiply(a: Accumulator, b: Accumulator) -> Accumulator:
    """Multiply; of complex numbers (1, -0.0) is no factor."""
    if len(a) == 1:
        return (a[0] * b[0] % (1 << 64) if isinstance(a[0], int) else a[0] * b[0],)
    if _is_one(a):
        return b
    return a if _is_one(b) else _complex_product(a, b)


def _is_one(a: Accumulator) -> bool:
    return bool(a[0] == 1.0 and a[1] == 0.0 and np.signbit(a[1]))


def _complex_product(a: Accumulator, b: Accumulator) -> Accumulator:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def magnitude(dtype: str, x: Any) -> Any:
    """Return the magnitude of an element; of a complex one in float64."""
    if dtype not in PARTS:
        return abs(x)
    re, im = abs(x[0]), abs(x[1])
    if np.isinf(re) or np.isinf(im):
        return np.float64(np.inf)
    if np.isnan(re) or np.isnan(im):
        return np.float64(np.nan)
    if dtype == "complex64":
        return np.sqrt(re * re + im * im)
    large, small = max(re, im), min(re, im)
    if large == 0.0:
        return np.float64(0.0)
    r = small / large
    return large * np.sqrt(np.float64(1.0) + r * r)


def rank(x: Any) -> tuple[float, bool]:
    """Return what elements are ordered by, NaN apart: the value, and +0.0 above -0.0."""
    return (x, not np.signbit(x)) if not isinstance(x, int) else (x, True)


def extreme(x: Any, y: Any, *, largest: bool) -> Any:
    """Return the least or the greatest of two; NaN wins."""
    if x != x or y != y:
        return x if x != x else y
    return y if (rank(y) > rank(x) if largest else rank(y) < rank(x)) else x


def place(a: Accumulator, b: Accumulator, *, largest: bool, last: bool) -> Accumulator:
    """Return the element that wins with its index."""
    nan_a, nan_b = a[0] != a[0], b[0] != b[0]
    if nan_a != nan_b:
        return a if nan_a else b
    if (nan_a and nan_b) or a[0] == b[0]:
        return max(a, b, key=lambda each: each[1]) if last else min(a, b, key=lambda each: each[1])
    return b if (b[0] > a[0]) == largest else a


class Moments:
    """The moments of a row about its first element."""

    def __init__(self, dtype: str, first: Any) -> None:
        self.units = dtype in ("float64", "complex128")
        self.pivot = tuple(p if np.isfinite(p) else np.float64(0.0) for p in _parts(first))

    def map(self, x: Any) -> Accumulator:
        """Return deviations and their square."""
        pairs = list(zip(_parts(x), self.pivot, strict=True))
        found = _with_square([each - p for each, p in pairs])
        if not self.units or found[-1] < 2.0**960:
            return found
        *d, q = _with_square([each * 2.0**-560 - p * 2.0**-560 for each, p in pairs])
        return *d, -q

    def combine(self, a: Accumulator, b: Accumulator) -> Accumulator:
        """Add, in the units of both."""
        if self.units and (a[-1] < 0) != (b[-1] < 0):
            a, b = (each if each[-1] < 0 else self._converted(each) for each in (a, b))
        return add(a, b)

    @staticmethod
    def _converted(a: Accumulator) -> Accumulator:
        return *(d * 2.0**-560 for d in a[:-1]), -((a[-1] * 2.0**-560) * 2.0**-560)

    @staticmethod
    def finish(a: Accumulator, n: Any, ddof: float, *, is_root: bool) -> tuple[Any, Any]:
        """Return the variance, or its root, as a pair."""
        *d, q = a
        terms = [each * (each / n) for each in d]
        r = abs(q) - (terms[0] if len(terms) == 1 else terms[0] + terms[1])
        r = np.float64(0.0) if r < 0 else r
        high, low = quotient(r, np.float64(0.0), max(n - np.float64(ddof), np.float64(0.0)))
        if is_root:
            high, low = root(high)
        if q < 0:
            high, low = high * 2.0**560, np.float64(0.0)
            high = high if is_root else high * 2.0**560
        return high, low


def _parts(x: Any) -> tuple[Any, ...]:
    return tuple(map(np.float64, x if isinstance(x, tuple) else (x,)))


def _with_square(d: list[Any]) -> Accumulator:
    squares = [each * each for each in d]
    return *d, squares[0] if len(squares) == 1 else squares[0] + squares[1]


def masked_map(x: Any) -> Accumulator:
    """Return the accumulator of moments with a mask."""
    parts = _parts(x)
    zeros = [each - each for each in parts]
    return *parts, zeros[0] if len(zeros) == 1 else zeros[0] + zeros[1], np.float64(1.0)


def masked_combine(a: Accumulator, b: Accumulator) -> Accumulator:
    """Combine moments with a mask."""
    (*sums_a, q, k), (*sums_b, r, m) = a, b
    gained = [_between(x, k, y, m) for x, y in zip(sums_a, sums_b, strict=True)]
    total = gained[0] if len(gained) == 1 else gained[0] + gained[1]
    return *add(tuple(sums_a), tuple(sums_b)), (q + r) + total, k + m


def _between(a: Any, k: Any, b: Any, m: Any) -> Any:
    if k == 0 or m == 0:
        return np.float64(0.0)
    e = a / k - b / m
    return (e * e) * ((k * m) / (k + m))


def exponentials(a: Accumulator, b: Accumulator) -> Accumulator:
    """Combine sums of exponentials."""
    kind = type(a[0])
    difference = -abs(a[0] - b[0])
    e = kind(1.0) if np.isnan(difference) else np.exp(difference)
    if kind is np.float32 and e < 2.0**-126:
        e = kind(0.0)
    h, l = (a[1], b[1]) if a[0] > b[0] else (b[1], a[1])  # noqa: E741
    return np.maximum(a[0], b[0]), h + (l * e + e)


# --- One row


def results(vector: dict[str, Any]) -> list[list[str]]:
    """Return what a vector's `results` are, by the text."""
    x = elements(vector, vector["seed"], replaced=True)
    y = elements(vector, vector["seed"] + 1, replaced=False) if vector["op"] == "dot" else None
    options = vector.get("options", {})
    count = math.prod(vector["shape"])
    taken = [w % 4 != 0 for w in words(vector["seed"] + 2, count)] if options.get("where") else [True] * count
    with np.errstate(all="ignore"):
        found = [
            row_results(
                vector["op"],
                vector["dtype"],
                [x[i] for i in row],
                None if y is None else [y[i] for i in row],
                [taken[i] for i in row],
                options,
            )
            for row in rows_of(vector)
        ]
    return [list(each) for each in zip(*found, strict=True)]


def default_accumulator(op: str, dtype: str) -> str:
    """Return the accumulator of an operator that is a sum of something, or a product."""
    if dtype in PARTS:
        return "float64" if op in ("norm1", "norm2") else "complex128"
    if is_integer(dtype):
        wide = "uint64" if dtype[0] == "u" else "int64"
        in_float = op in ("norm1", "norm2") or (op == "mean" and dtype in ("int64", "uint64"))
        return "int64" if op == "count_nonzero" else "float64" if in_float else wide
    if op == "count_nonzero":
        return "int64"
    return "float64" if dtype in ("float32", "float64") else "float32"


def default_result(op: str, dtype: str, accumulate: str | None) -> str:
    """Return the type of the results."""
    if op in ("any", "all"):
        return "bool"
    if op in ("argmin", "argmax", "count_nonzero"):
        return "int64"
    if op in ("min", "max", "minmax"):
        return dtype
    if op == "dot" and is_integer(dtype):
        return dtype
    if op in ("sum", "prod", "sum_squares", "dot", "mean") and dtype in PARTS:
        return dtype
    if dtype in PARTS:
        return PARTS[dtype]
    if not is_integer(dtype):
        return "float32" if dtype.startswith("float8") else dtype
    if op in ("sum", "prod", "sum_squares"):
        return dtype if accumulate == dtype else "uint64" if dtype[0] == "u" else "int64"
    return "float64"


def widened(accumulator: str, x: Any) -> Accumulator:
    """Return an element as an accumulator."""
    if accumulator == "complex128":
        return tuple(map(np.float64, x))
    if accumulator == "compensated":
        return np.float64(x), np.float64(0.0)
    if accumulator in ("int64", "uint64"):
        return (int(x),)
    return (getattr(np, accumulator)(x),)


def row_results(
    op: str, dtype: str, x: list[Any], y: list[Any] | None, taken: Sequence[bool], options: dict[str, Any]
) -> list[str]:
    """Return the results of one row, as a vector says them."""
    result = options.get("dtype") or default_result(op, dtype, options.get("accumulate"))
    part = PARTS.get(result, result)
    if not x and "initial" not in options:
        empty: dict[str, tuple[Any, ...]] = {
            **dict.fromkeys(("mean", "var", "std"), (np.float64(np.nan),)),
            "mean_var": 2 * (np.float64(np.nan),),
            "prod": (1,),
            "all": (1,),
            "logsumexp": (np.float64(-np.inf),),
            "softmax_stats": (np.float64(-np.inf), np.float64(0.0)),
        }
        values = [(each, each if op == "mean" else 0) for each in empty.get(op, (0,))]
        return ["".join(bytes_of(part, rounded(part, each)) for each in v[: 1 + (result in PARTS)]) for v in values]
    pairs = _row(op, dtype, x, y, taken, options)
    if result in PARTS:
        return ["".join(bytes_of(part, rounded(part, *pair)) for pair in pairs)]
    return [bytes_of(part, rounded(part, *pair)) for pair in pairs]


def _row(
    op: str, dtype: str, x: list[Any], y: list[Any] | None, taken: Sequence[bool], options: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the results of a row before they are rounded: numbers, or pairs with what is left."""
    v, n = 16 // size_of(dtype), np.float64(len(x))
    if options.get("nan") == "ignore":
        taken = [
            part and not any(np.isnan(each) for each in _parts(value)) for part, value in zip(taken, x, strict=True)
        ]
    initial = options.get("initial")
    if op in ("var", "std", "mean_var"):
        return _moments(op, dtype, x, taken, options, v)
    if op in ("logsumexp", "softmax_stats"):
        return _exponentials(op, dtype, x, taken, options, v)
    if op in ("min", "max", "minmax", "norm_inf", "argmin", "argmax", "any", "all"):
        return _chosen(op, dtype, x, taken, options, v)
    accumulator = options.get("accumulate") or default_accumulator(op, dtype)
    if accumulator == dtype and is_integer(dtype):
        accumulator = default_accumulator(op, dtype)
    compensated = accumulator == "compensated"
    combine = multiply if op == "prod" else add_compensated if compensated else add
    found = [_mapped(op, dtype, each, None if y is None else y[i], accumulator) for i, each in enumerate(x)]
    if op == "prod":
        skipped = widened(accumulator, (1.0, -0.0) if accumulator == "complex128" else 1)
    else:
        skipped = widened(accumulator, (0.0, 0.0) if accumulator == "complex128" else 0)
    found = [each if part else skipped for each, part in zip(found, taken, strict=True)]
    if initial is not None:
        given = widened(accumulator, (initial, 0.0) if accumulator == "complex128" else initial)
        none = widened(accumulator, 1 if op == "prod" else (-0.0, -0.0) if accumulator == "complex128" else -0.0)
        total = combine(given, root_of(found, v, combine) if found else none)
    else:
        total = root_of(found, v, combine)
    if accumulator == "int64":
        total = ((total[0] + (1 << 63)) % (1 << 64) - (1 << 63),)
    elif accumulator == "uint64":
        total = (total[0] % (1 << 64),)
    if op == "mean":
        n = np.float64(sum(taken))
        return [quotient(total[0], total[1], n)] if compensated else [quotient_of(each, n) for each in total]
    if op == "norm2":
        return [root(np.float64(total[0]))]
    return [total] if compensated else [(each,) for each in total]


def _mapped(op: str, dtype: str, x: Any, y: Any, accumulator: str) -> Accumulator:
    if op == "count_nonzero":
        return (int(any(each != 0 for each in _parts(x))),)
    if op == "norm1":
        return widened(accumulator, magnitude(dtype, x) if dtype in PARTS else abs(widened(accumulator, x)[0]))
    if op == "norm2" and dtype in PARTS:
        re, im = _parts(x)
        return (re * re + im * im,)
    z = widened(accumulator, x)
    if op == "dot" and accumulator == "compensated":
        return two_product(z[0], np.float64(y))
    if op == "dot":
        other = widened(accumulator, y)
        return _complex_product(z, other) if len(z) == 2 else (z[0] * other[0],)
    return (z[0] * z[0],) if op in ("norm2", "sum_squares") else z


def _chosen(
    op: str, dtype: str, x: list[Any], taken: Sequence[bool], options: dict[str, Any], v: int
) -> list[tuple[Any, ...]]:
    """Return extremes, their places, any and all; what is skipped is the identity, so it may as well be absent."""
    left = [(i, each) for i, (each, part) in enumerate(zip(x, taken, strict=True)) if part]
    if op in ("any", "all"):
        truths = [any(part != 0 for part in _parts(each)) for _, each in left]
        return [((any if op == "any" else all)(truths),)]
    if op in ("argmin", "argmax"):
        largest, last = op == "argmax", options.get("last", False)
        found: list[Accumulator] = [(each, i) for i, each in left]
        return [(root_of(found, v, lambda a, b: place(a, b, largest=largest, last=last))[1],)]
    values = [each for _, each in left]
    if op == "norm_inf":
        values = [magnitude(dtype, each) if dtype in PARTS else abs(each) for each in values]
        values = [np.float64(each) for each in values] or [np.float64(0.0)]
    if "initial" in options:
        initial = options["initial"]
        values.insert(0, initial if is_integer(dtype) else number_of(dtype, rounded(dtype, np.float64(initial))))
    if not values:  # all are NaN, and left out
        values = [np.float64(np.nan)]
    chosen = []
    for name in ("min", "max") if op == "minmax" else (op,):
        kept = values[0]
        for each in values[1:]:
            kept = extreme(kept, each, largest=name != "min")
        chosen.append((kept,))
    return chosen


def _moments(
    op: str, dtype: str, x: list[Any], taken: Sequence[bool], options: dict[str, Any], v: int
) -> list[tuple[Any, ...]]:
    n, ddof = np.float64(len(x)), options.get("ddof", 0)
    if options.get("where"):
        none = masked_map((0.0, 0.0) if dtype in PARTS else 0.0)
        none = (*none[:-1], np.float64(0.0))
        total = root_of([masked_map(e) if t else none for e, t in zip(x, taken, strict=True)], v, masked_combine)
        *sums, q, k = total
        pair = quotient(q, np.float64(0.0), max(k - np.float64(ddof), np.float64(0.0)))
        pair = root(pair[0]) if op == "std" else pair
        return [pair] if op != "mean_var" else [quotient(sums[0], np.float64(0.0), k), pair]
    moments = Moments(dtype, x[0])
    total = root_of([moments.map(each) for each in x], v, moments.combine)
    pair = moments.finish(total, n, ddof, is_root=op == "std")
    if op != "mean_var":
        return [pair]
    result = options.get("dtype") or default_result(op, dtype, None)
    if dtype in ("int8", "int16", "uint8", "uint16", "bool"):
        return [quotient_of(int(total[0]) + int(moments.pivot[0]) * len(x), n), pair]
    if dtype in FORMATS and dtype != "float64" and result != "float64":
        return [(moments.pivot[0] + total[0] / n,), pair]
    exactly = dtype in ("int32", "uint32")
    (whole,) = root_of([(each if exactly else np.float64(each),) for each in x], v, add)
    return [quotient_of(whole, n), pair]


def _exponentials(
    op: str, dtype: str, x: list[Any], taken: Sequence[bool], options: dict[str, Any], v: int
) -> list[tuple[Any, ...]]:
    narrow = dtype in FORMATS and dtype != "float64"
    kind = getattr(np, options.get("accumulate") or ("float32" if narrow else "float64"))
    found = [(kind(each), kind(0.0)) if t else (kind(-np.inf), kind(-1.0)) for each, t in zip(x, taken, strict=True)]
    m, r = root_of(found, v, exponentials)
    if op == "logsumexp":
        return [(m + np.log1p(r),)]
    if np.isnan(m) or np.isnan(r):
        m = r = kind(np.nan)
    return [(m + kind(0.0),), (r + kind(1.0),)]
