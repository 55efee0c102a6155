"""Columns whose tiles are a cluster: the blocks of any number up to eight bring their parts to the first one."""

import numpy as np
import pytest
from placed import prefer_way

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import numpy_dtype

pytestmark = pytest.mark.usefixtures("without_elements")

SHAPES = [(1500, 64), (3000, 64), (5000, 64), (7000, 32), (3, 2048, 40), (2048, 5, 3, 33)]
OPERATORS = [("sum", "float32"), ("max", "float32"), ("mean_var", "float32"), ("logsumexp", "float32"),
             ("sum", "float16"), ("sum", "int8"), ("sum", "float64"), ("sum", "complex64"),
             ("argmax", "float16")]  # fmt: skip


def array(shape, dtype, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 5
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype == "complex64" else x.astype(numpy_dtype(dtype))


def assert_same(found, expected):
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for mine, theirs in pairs:
        assert mine.numpy().tobytes() == np.asarray(theirs).tobytes()


@pytest.fixture(autouse=True)
def in_clusters(monkeypatch):
    """Wherever that is possible."""
    prefer_way(monkeypatch, lambda way, of: way.folded_by != "cluster")


@pytest.mark.parametrize("blocks", range(2, 9))
def test_clusters_of_any_size_give_the_bits_of_the_tree(context, stream, cut, monkeypatch, blocks):
    if not context.device.compute_capability >= (9, 0):
        pytest.skip("the device has no clusters")
    prefer_way(monkeypatch, lambda way, of: (way.folded_by != "cluster", way.parts != blocks))
    for shape in cut(SHAPES, [(blocks * 1024 - 3, 36)]):
        axis = (0, 2) if len(shape) == 4 else -2
        with lr.plan("sum", shape=shape, dtype="float32", axis=axis, context=context) as plan:
            if plan.strategy.cluster != blocks:  # so many would not have as many elements each
                continue
            assert f"in clusters of {blocks} of" in plan.describe()
            assert plan.workspace_bytes == 0
        x = array(shape, "float32")
        assert_same(lr.sum(x, axis=axis, stream=stream), lr.tree.reduce(x, axis=axis))


@pytest.mark.parametrize(("op", "dtype"), OPERATORS, ids=str)
def test_operators_and_types(stream, cut, op, dtype):
    for rows, columns in cut([(2048, 64), (3000, 100), (4096, 128), (8192, 128)], [(3000, 36)]):
        x = array((rows, columns), dtype)
        expected = lr.tree.reduce(x, op, axis=0)
        found = lr.reduce(x, op, axis=0, stream=stream)
        if op == "logsumexp":  # of exponentials the bits are not promised
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
        else:
            assert_same(found, expected)


def test_two_arrays_and_masks(stream):
    x, y = array((2048, 64), "float32"), array((2048, 64), "float32", 2)
    assert_same(lr.reduce(x, "dot", axis=0, second=y, stream=stream), lr.tree.reduce(x, "dot", axis=0, second=y))
    assert_same(lr.sum(x, axis=0, where=y > 0, stream=stream), lr.tree.reduce(x, axis=0, where=y > 0))


def test_one_launch_after_another(stream, cut):
    # Each launch begins while the one before it ends, and uses the same shared memory again.
    x = lr.DeviceArray.from_numpy(array((2048, 64), "float32"), stream)
    expected = lr.tree.reduce(x.numpy(), axis=0).tobytes()
    found = [lr.sum(x, axis=0, stream=stream) for _ in range(cut(200, 3))]
    assert {each.numpy().tobytes() for each in found} == {expected}
