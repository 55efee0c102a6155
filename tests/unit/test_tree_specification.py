"""docs/tree.md is complete: an implementation by its text alone has its vectors, and so has the tree."""

import ast
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type, numpy_dtype
from lowlevel_reduce.operators import OPERATORS, resolve
from tests.golden import from_the_text, vectors

VERSION, VECTORS = vectors.read()
ROOT = Path(lr.__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "tree.md").read_text(encoding="utf-8")


def near(vector, one, other):
    """Tell whether results of an operator that is not exact agree within the bound that it states."""
    options = vector.get("options", {})
    reduction = resolve(vector["op"], where=options.get("where", False))
    types = reduction.types(element_type(vector["dtype"]), options.get("accumulate"), options.get("dtype"))
    values = [
        np.frombuffer(bytes.fromhex("".join(each)), types.result_dtype).astype(np.float64) for each in (one, other)
    ]
    bound = reduction.tolerance(values[1], vector["shape"][0], types)
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(values[0] - values[1]) <= bound) | (values[0] == values[1])).all())


@pytest.mark.parametrize("op", OPERATORS)
def test_the_text_alone_gives_the_vectors(op):
    for vector in (each for each in VECTORS if each["op"] == op):
        found = from_the_text.results(vector)
        if not vector.get("near"):
            assert found == vector["results"], vector
        else:
            assert all(near(vector, *each) for each in zip(found, vector["results"], strict=True)), vector


@pytest.mark.parametrize("op", OPERATORS)
def test_the_tree_gives_the_vectors(op):
    for vector in (each for each in VECTORS if each["op"] == op):
        found = vectors.by_tree(vector)
        if not vector.get("near"):
            assert found == vector["results"], vector
        else:  # NumPy's exponentials differ from one of its versions to the next
            assert all(near(vector, *each) for each in zip(found, vector["results"], strict=True)), vector


def test_the_other_implementation_knows_nothing_of_the_library():
    tree = ast.parse(Path(from_the_text.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"__future__", "collections.abc", "fractions", "itertools", "math", "numpy", "typing"}


def test_no_vector_is_missing_and_all_have_the_version():
    assert lr.__tree_version__ == VERSION
    assert f"is **{VERSION}**, `lr.__tree_version__`" in PAGE
    assert [{k: v for k, v in each.items() if k != "results"} for each in VECTORS] == vectors.wanted()


def test_the_vectors_tell_one_order_from_others():
    """Folding what they fold from left to right, or over vectors of another width, gives other bits in most of them."""
    told = {"from the left": 0, "twice the vector": 0, "neighbours first": 0}
    sums = [each for each in VECTORS if each["op"] == "sum" and each.get("options") == {} and len(each["shape"]) == 1]
    long = [each for each in sums if each["dtype"] == "float64" and each["shape"][0] > 128]
    assert len(long) >= 8
    for each in long:
        x = [(np.float64(value),) for value in vectors.arrays(each)[0]]
        (kept,) = np.frombuffer(bytes.fromhex(each["results"][0][0]))
        others = {
            "from the left": np.cumsum([value for (value,) in x])[-1],
            "twice the vector": from_the_text.root_of(x, 4, from_the_text.add)[0],
            "neighbours first": from_the_text.fold(x, from_the_text.add)[0],
        }
        for name, other in others.items():
            told[name] += bool(other != kept)
    assert min(told.values()) >= len(long) // 2, told


def test_the_page_has_the_types_of_the_library():
    table = PAGE.split("### Types\n\n")[1].split("\n\n")[0].splitlines()[2:]
    told = {}
    for line in table:
        names, accumulators, result, results = (cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall(r"`(\w+)`", names):
            told[name] = accumulators, result, results
    assert told.keys() == {each.name for each in ELEMENT_TYPES}
    for element in ELEMENT_TYPES:
        accumulators, result, results = told[element.name]
        assert accumulators.replace(", two float64", "") == ", ".join(element.accumulators)
        assert (element.name if result == "the element's" else result) == element.result
        integers = [each.name for each in ELEMENT_TYPES if each.dtype.kind in "iu"]
        names = re.findall(r"\w+", results.replace("all integers", " ".join(integers)))
        assert set(names) == set(element.results)


def test_the_page_has_the_generator_that_made_the_vectors():
    table = re.findall(r"^\| `(\w+)`[^|]*\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    told = {name: tuple(map(int, rest)) for name, *rest in table}
    assert told == {
        name: (each.fraction, each.low, each.high, each.bias) for name, each in from_the_text.FORMATS.items()
    }
    assert from_the_text.words(7, 2) == [
        int(each, 16) for each in re.findall(r"`w\(7, \d\)` is `0x(\w+)`", " ".join(PAGE.split()))
    ]


@pytest.mark.parametrize(
    ("fold", "names"),
    [
        ("slots", "((0 1)(2 3))   ((4 5)(6 7))   ((8 9) 10)"),
        ("lanes", "(lane 0 + lane 1) + lane 2"),
    ],
)
def test_the_picture_of_the_page_is_that_of_the_tree(fold, names):
    assert names in PAGE

    def joined(a, b):
        return (f"({a[0]} {b[0]})",)

    vectors_of_four = [[(str(i),) for i in each] for each in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10))]
    slots = [from_the_text.fold(each, joined)[0] for each in vectors_of_four]
    if fold == "slots":
        assert [each.replace(") (", ")(") for each in slots] == names.split("   ")
    else:
        whole = from_the_text.root_of([(str(i),) for i in range(11)], 4, joined)[0]
        assert whole == f"(({slots[0]} {slots[1]}) {slots[2]})"


@pytest.mark.parametrize("name", [*from_the_text.FORMATS])
def test_its_conversions_are_those_of_the_types(name):
    """Decoding by hand and rounding by fractions, against NumPy and ml_dtypes; half of what is rounded is a tie."""
    dtype = numpy_dtype(name)
    size = dtype.itemsize
    bits = range(256) if size == 1 else [w >> (64 - 8 * size) for w in from_the_text.words(5, 300)]
    values = np.array(bits, f"u{size}").view(dtype)
    for word, value in zip(bits, values, strict=True):
        found = from_the_text.number_of(name, word)
        assert found == float(value) or (np.isnan(found) and np.isnan(float(value)))
    if name.startswith("float8"):
        return  # no result but a minimum is of these types, which rounds nothing
    finite = sorted({x for x in map(float, values) if np.isfinite(x)})
    with np.errstate(over="ignore"):
        for low, high in itertools.pairwise(finite):
            for x in (low, np.float64(low) * 0.5 + np.float64(high) * 0.5, np.nextafter(low, 0.0)):
                expected = np.float64(x).astype(dtype) if name != "bfloat16" else _to_bfloat16(x)
                assert from_the_text.rounded(name, np.float64(x)) == int(expected.view(f"u{size}"))


def _to_bfloat16(x):
    from lowlevel_reduce.operators.rounding import round_to

    return round_to(np.array(x), numpy_dtype("bfloat16"))[()]
