"""Summation trees by themselves: equality, words, drawings, and their recovery from sums by masks."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from nested_trees import tree

from lowlevel_reduce import UnsupportedError
from lowlevel_reduce.workbench.drawing import svg
from lowlevel_reduce.workbench.masking import masked_tree
from lowlevel_reduce.workbench.summation import Node, Tree, difference


def summed(shape, values):
    """Return the sum in the order of nested pairs, each addition rounded to float32."""
    if isinstance(shape, int):
        return values[shape]
    return np.float32(summed(shape[0], values) + summed(shape[1], values))


def chain(n):
    shape = 0
    for element in range(1, n):
        shape = (shape, element)
    return shape


def drawn(elements, generator):
    """Return a random tree of these elements."""
    if len(elements) == 1:
        return int(elements[0])
    cut = int(generator.integers(1, len(elements)))
    return drawn(elements[:cut], generator), drawn(elements[cut:], generator)


BALANCED = (((0, 1), (2, 3)), ((4, 5), (6, 7)))
HALVES = (((0, 4), (2, 6)), ((1, 5), (3, 7)))


def test_operands_may_be_exchanged_and_nothing_else():
    assert tree(BALANCED).same_order(tree((((7, 6), (4, 5)), ((2, 3), (1, 0)))))
    assert not tree(BALANCED).same_order(tree(HALVES))
    assert not tree(BALANCED).same_order(tree((((0, 1), (2, 3)), ((4, 6), (5, 7)))))
    assert not tree((0, 1)).same_order(tree((0, 2)))


def test_a_planted_swap_is_found_and_told():
    swapped = tree((((0, 1), (2, 3)), ((4, 6), (5, 7))))
    assert difference(swapped, tree(BALANCED)) == "the first adds 4 and 6, whose sum the second never has"
    assert difference(tree(BALANCED), swapped) == "the first adds 4 and 5, whose sum the second never has"
    assert difference(tree(BALANCED), tree(BALANCED)) is None


@pytest.mark.parametrize(
    ("shape", "word", "depth"),
    [(BALANCED, "balanced", 3), (HALVES, "balanced", 3), (chain(9), "one after the other", 8), (0, "no addition", 0),
     ((((0, 1), (2, 3)), (((4, 5), 6), 7)), "mixed", 4)],
)  # fmt: skip
def test_shapes_in_words(shape, word, depth):
    found = tree(shape)
    assert (found.shape(), found.depth) == (word, depth)


def test_thousands_of_additions_in_a_row_need_no_recursion():
    elements = [Node("element", (), place, "f32", 0.0) for place in range(5000)]
    nodes = [elements[0]]
    for element in elements[1:]:
        nodes += [element, Node("add", (len(nodes) - 1, len(nodes)), -1, "f32", 0.0)]
    # The elements below each node would be 12 million numbers, so only what a chain needs is asked.
    found = Tree(tuple(nodes))
    assert found.depth == 4999
    assert found.same_order(Tree(tuple(nodes)))


def test_elements_that_are_not_there_once():
    assert tree(((0, 1), (1, 3))).wrong_elements(5) == [1, 2, 4]
    assert tree(BALANCED).wrong_elements(8) == []


def test_text_and_formula():
    assert tree(BALANCED).formula() == "(((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)))"
    assert tree(((3, 2), (1, 0))).formula() == "((0 + 1) + (2 + 3))"
    text = tree((BALANCED, tuple(8 + each for each in range(2)))).text().splitlines()
    assert text == ["+ 0..9", "|- (((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)))", "`- (8 + 9)"]


def test_the_picture_has_every_element_and_every_addition():
    picture = svg(tree(HALVES), 'the order of "a" & b')
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    assert [text.text for text in root.iter(f"{space}text")] == ["0", "4", "2", "6", "1", "5", "3", "7"]
    assert len(list(root.iter(f"{space}path"))) == 2 * 7
    assert root.find(f"{space}title").text == 'the order of "a" & b'
    assert not re.search(r"#[0-9a-f]{3}|black|white", picture), "lines take the colour of the page's text"


@pytest.mark.parametrize("seed", range(8))
def test_masks_recover_any_tree_of_pairs(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 40))
    shape = drawn(generator.permutation(n), generator)
    found = masked_tree(lambda values: float(summed(shape, values)), n, "float32")
    assert found.same_order(tree(shape))


def test_masks_take_about_n_log_n_sums():
    calls = []

    def run(values):
        calls.append(values)
        return float(summed((BALANCED, tuple(tuple(8 + e for e in pair) for pair in ((0, 1), (2, 3)))), values))

    masked_tree(run, 12, "float32")
    assert len(calls) <= 12 * 4


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda values: float(values.sum()) - 1, "ones do not sum"),
        (lambda values: float(np.sum(values, dtype=np.longdouble)) if values.max() < 2 else 3.5, "no sum of ones"),
        (lambda values: 4.0 if values.max() < 2 else float(values[1:-1].sum() == 2), "no additions of pairs"),
    ],
)
def test_what_is_no_tree_is_refused(run, words):
    with pytest.raises(UnsupportedError, match=words):
        masked_tree(run, 4, "float32")


def test_types_without_room_for_masks_are_refused():
    with pytest.raises(UnsupportedError, match="float16 has no number that absorbs ones"):
        masked_tree(float, 4, "float16")
