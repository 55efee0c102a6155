"""Which golden cases there are: every operator with every type, and pairs of their options, layouts and lengths."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from lowlevel_reduce.dtypes import ELEMENT_TYPES, LANES, ElementType, element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import OPERATORS, Reduction, resolve
from tests.golden.cases import MAPS, USERS, Case
from tests.golden.elements import FLOAT_KINDS, INTEGER_KINDS
from tests.golden.layouts import LAYOUTS, levels

__all__ = ["additional"]

_CANDIDATES = 80
"""Ways to lie that are compared for each case; more of them make the draw longer and no better."""

_TYPES_OF_A_USERS = 5
"""How many types an operator of a user's meets without options."""

_IN_BOTH_WIDTHS = ("sum", "mean")

_FEW_OPERATORS = 4
"""An option of so few operators meets two types with each, others one."""

_ASKED = {"nan": "ignore", "where": True, "initial": True, "last": True, "ddof": 1}
_TOGETHER = {"nan": "ignore", "where": True, "initial": True, "map": "x * x"}

# Sums whose bits tell in which order they were made: of integers and of few bits many orders give the same.
_TELLING: list[tuple[str, dict[str, Any], str]] = [
    ("sum", {"accumulate": "float32"}, "float32"),
    ("sum", {}, "float64"),
    ("sum", {"dtype": "float64"}, "float16"),
    ("prod", {}, "float64"),
    ("sum", {"dtype": "float64"}, "float8_e5m2"),
    ("mean_var", {"dtype": "float64"}, "float32"),
    ("sum", {}, "complex128"),
    ("norm1", {"dtype": "float64"}, "bfloat16"),
]
_TELLING_OF_A_LAYOUT = 2

Options = dict[str, Any]
Problem = tuple[str, Options, ElementType]


def additional(known: Iterable[Case]) -> list[Case]:
    """Return the cases that are missing beside those that are known.

    Each operator whose bits are promised is there with each type; with each option; each type with each accumulator and
    with several result types. Each of these problems gets the layout, the length and the elements that join most values
    which few cases have joined before. Each layout is there with two sums whose bits tell the order of all additions.
    """
    cases = list(known)
    pairs = Counter(itertools.chain.from_iterable(map(_pairs, cases)))
    there = {_key(case.op, case.options, case.dtype) for case in cases}
    found: list[Case] = []
    for op, options, element in _problems():
        if _key(op, options, element.name) not in there:
            found.append(_best(op, options, element, pairs))
            pairs.update(_pairs(found[-1]))
    told = {(case.layout, _key(case.op, case.options, case.dtype)) for case in cases}
    for number, layout in enumerate(LAYOUTS):
        for turn in range(_TELLING_OF_A_LAYOUT):
            op, options, dtype = _TELLING[(number + 3 * turn) % len(_TELLING)]
            if (layout, _key(op, options, dtype)) not in told:
                found.append(_best(op, options, element_type(dtype), pairs, layout))
                pairs.update(_pairs(found[-1]))
    return found


def _key(op: str, options: Options, dtype: str) -> str:
    return json.dumps([op, options, dtype], sort_keys=True)


def _problems() -> Iterator[Problem]:
    names = [name for name, reduction in OPERATORS.items() if reduction.exact]
    for number, op in enumerate(names):
        for turn, element in enumerate(_takers(op, {})):
            wide = _wide(op, {}, element)
            if wide:  # sums of narrow floats, of which those that people ask for most in both widths
                yield op, wide, element
            if not wide or op in _IN_BOTH_WIDTHS or (number + turn) % 4 == 0:
                yield op, {}, element
    for number, op in enumerate(USERS):
        taken = _takers(op, {})
        for turn in range(_TYPES_OF_A_USERS):
            yield op, {}, taken[(number + 4 * turn) % len(taken)]
    yield from _with_options(names)
    yield from _with_accumulators(names)
    yield from _with_result_types(names)


def _takers(op: str, options: Options) -> list[ElementType]:
    return [element for element in ELEMENT_TYPES if _reduction(op, options, element) is not None]


def _with_options(names: list[str]) -> Iterator[Problem]:
    asked: list[Options] = [{key: value} for key, value in _ASKED.items()]
    asked += [{"map": source} for source in MAPS] + [_TOGETHER]
    turn = itertools.count()
    for options in asked:
        takers = [(op, taken) for op in (*names, *USERS) if (taken := _takers(op, options))]
        for op, taken in takers:
            for _ in range(2 if len(takers) <= _FEW_OPERATORS else 1):
                element = taken[7 * next(turn) % len(taken)]
                yield op, {**options, **_wide(op, options, element)}, element


def _with_accumulators(names: list[str]) -> Iterator[Problem]:
    """Yield each type with each accumulator but the default, and modulo its own width, with two operators that can."""
    for element in ELEMENT_TYPES:
        takers: dict[str, list[str]] = {}
        for op in names:
            reduction = _reduction(op, {}, element)
            if reduction is not None:
                rule = reduction.rule(element)
                for name in (*rule.accumulators[1:], *((element.name,) if _wraps(reduction, element) else ())):
                    takers.setdefault(name, []).append(op)
        for number, (name, ops) in enumerate(takers.items()):
            for op in dict.fromkeys((ops[number % len(ops)], "sum" if "sum" in ops else ops[0])):
                yield op, {"accumulate": name, **_wide(op, {"accumulate": name}, element)}, element


def _wraps(reduction: Reduction, element: ElementType) -> bool:
    return reduction.rule(element).wraps and element.dtype.kind in "iu" and element.itemsize < 8


def _with_result_types(names: list[str]) -> Iterator[Problem]:
    """Yield each type with other result types."""
    for number, element in enumerate(ELEMENT_TYPES):
        for turn in range(2):
            op = names[(number + 5 * turn) % len(names)]
            reduction = _reduction(op, {}, element)
            if reduction is not None:
                results = [name for name in reduction.rule(element).results if name != reduction.rule(element).result]
                if results:
                    yield op, {"dtype": results[(number + 3 * turn) % len(results)]}, element


def _wide(op: str, options: Options, element: ElementType) -> Options:
    """Return the option for results in float64, which shows every bit, where floats would have narrower ones."""
    reduction = _reduction(op, options, element)
    narrow = reduction is not None and element.is_float and element.itemsize < 8
    if not narrow or reduction is None or "float64" not in reduction.rule(element).results:
        return {}
    return {"dtype": "float64"} if op in OPERATORS else {}


def _reduction(op: str, options: Options, element: ElementType) -> Reduction | None:
    """Return an operator with options, or None where it does not take them or the type."""
    asked = {key: value for key, value in options.items() if key not in ("accumulate", "dtype", "map")}
    if "map" in options:
        asked["map"] = MAPS[options["map"]]
    try:
        reduction = resolve(USERS.get(op, op), **asked)
        reduction.types(element, options.get("accumulate"), options.get("dtype"))
    except (UnsupportedError, ValueError):
        return None
    return reduction


def _best(
    op: str, options: Options, element: ElementType, pairs: Counter[tuple[str, str]], layout: str | None = None
) -> Case:
    """Return the case of a problem that joins most pairs of values which are rare; with a layout, of its long rows."""
    rng = random.Random(_key(op, options, element.name) + (layout or ""))
    kinds = FLOAT_KINDS if element.is_float or element.is_complex else INTEGER_KINDS
    kind = rng.choice((*["plain"] * (len(kinds) - 1), *kinds))
    if "last" in options:  # the elements for which the option is
        kind = "ties"
    elif "nan" in options and "nan" in kinds:
        kind = "nan"
    elif layout:
        kind = "plain"
    step = LANES * element.vector
    longer = step + 1 if layout and LAYOUTS[layout].leaves * element.leaf > step + 1 else 0
    lengths = [length for length in levels(element).values() if length >= longer]
    candidates: list[Case] = []
    while len(candidates) < _CANDIDATES:
        case = Case(op, element.name, layout or rng.choice(list(LAYOUTS)), rng.choice(lengths), kind, options)
        if _fits(case):
            candidates.append(case)
    return max(candidates, key=lambda case: sum(1 / (1 + pairs[pair]) ** 2 for pair in _pairs(case)))


def _fits(case: Case) -> bool:
    """Tell whether a layout takes an operator and a length, and the length has a result."""
    layout, reduction, element = case.shape_of_rows, case.reduction, case.element
    least = 0 if layout.family == "array" and layout.off == "vector" else 1
    if case.length == 0 and reduction.empty is None and not reduction.has_initial:
        return False
    if layout.family == "segments" and reduction.two_arrays:
        return False
    if layout.family == "parts" and ((case.op in USERS and reduction.indexed) or case.length <= element.leaf // 2):
        return False
    return least <= case.length <= layout.leaves * element.leaf


def _pairs(case: Case) -> list[tuple[str, str]]:
    level = {length: name for name, length in levels(case.element).items()}.get(case.length, str(case.length))
    option = " ".join(case.options) or "no option"
    problem = (f"op {case.op}", f"type {case.dtype}", f"option {option}")
    lies = (f"layout {case.layout}", f"level {level}", f"kind {case.kind}", f"family {case.shape_of_rows.family}")
    return [*itertools.product(problem, lies), *itertools.combinations(lies, 2)]
