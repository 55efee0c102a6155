"""Properties of reductions on the simulated device, of arrays, operators and segments that hypothesis draws."""

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from numpy_cases import generate

import lowlevel_reduce as lr
from lowlevel_reduce.strategy.whole import STRATEGIES
from tests.fuzz import strategies

FEW = ("float32", "int32")


def on_device(laid, stream, asked, *, axis, strategy=None):
    """Return the bytes of the results of a plan for an array that lies as it lies on the host."""
    view, options = laid.view, dict(asked.options)
    options["result_dtype"] = options.pop("dtype", None)
    with lr.plan(
        asked.op,
        shape=view.shape,
        dtype=view.dtype,
        axis=axis,
        strides_bytes=view.strides,
        context=stream.context,
        strategy=strategy,
        **options,
    ) as plan:
        memory = lr.DeviceArray.from_numpy(laid.base, stream)
        shape = plan.result_shape if plan.results == 1 else (plan.results, *plan.result_shape)
        result = lr.DeviceArray.empty(shape, plan.result_dtype, stream)
        with contextlib.closing(plan.bind(stream)) as bound:
            bound(memory.pointer + laid.offset_bytes, result.pointer)
        return result.numpy().tobytes()


def by_the_tree(laid, asked, axis):
    found = lr.tree.reduce(laid.view, asked.op, axis=axis, **asked.options)
    return b"".join(np.asarray(each).tobytes() for each in (found if isinstance(found, tuple) else (found,)))


def check_any_layout(data, stream, names, *, plain):
    element = data.draw(strategies.element_types(names))
    asked = data.draw(strategies.operators(element, plain=plain))
    laid = data.draw(strategies.arrays(element, op=asked.op))
    axis = data.draw(strategies.axes(laid.view.ndim))
    assert on_device(laid, stream, asked, axis=axis) == by_the_tree(laid, asked, axis)


def check_any_segments(data, stream, names):
    element = data.draw(strategies.element_types(names))
    x = data.draw(strategies.arrays(element, contiguous=True)).view.reshape(-1)
    offsets = data.draw(strategies.segment_offsets(x.size))
    found = lr.segmented_reduce(x, offsets, "sum", stream=stream).numpy()
    pairs = itertools.pairwise(offsets)
    assert found.tobytes() == b"".join(np.asarray(lr.tree.reduce(x[a:b])).tobytes() for a, b in pairs)


def test_any_strategy_gives_the_trees_bits(stream):
    def body(data):
        element = data.draw(strategies.element_types(FEW))
        asked = strategies.Asked("sum", {}, None)
        laid = data.draw(strategies.arrays(element, contiguous=True))
        strategy = data.draw(st.sampled_from(STRATEGIES))
        assert on_device(laid, stream, asked, axis=None, strategy=strategy) == by_the_tree(laid, asked, None)

    generate(body, 25)


def test_any_layout_gives_the_trees_bits(stream):
    generate(lambda data: check_any_layout(data, stream, FEW[:1], plain=True), 15)


@pytest.fixture
def generate_anew(request):
    """Go through other examples in each run: those of its seed, which pytest's first lines name."""

    def run(body, examples):
        seeded = seed(request.config.option.seed)
        options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
        seeded(given(st.data())(settings(max_examples=examples, **options)(body)))()

    return run


@pytest.mark.soak
def test_many_operators_types_and_layouts_give_the_trees_bits(stream, generate_anew):
    generate_anew(lambda data: check_any_layout(data, stream, None, plain=False), 250)


@pytest.mark.soak
def test_many_segments_give_the_trees_bits(stream, generate_anew):
    generate_anew(lambda data: check_any_segments(data, stream, ["float32", "float64", "int64", "bfloat16"]), 120)


def test_the_strategies_draw_what_they_say():
    """Views of their memory, of all steps; offsets from 0 to the length that never fall; operators with options."""
    steps, options = set(), set()

    def body(data):
        element = data.draw(strategies.element_types())
        laid = data.draw(strategies.arrays(element))
        assert np.shares_memory(laid.base, laid.view)
        assert laid.view.size
        steps.update(np.sign(laid.view.strides))
        offsets = data.draw(strategies.segment_offsets(laid.view.size))
        assert (offsets[0], offsets[-1]) == (0, laid.view.size)
        assert (np.diff(offsets) >= 0).all()
        options.update(data.draw(strategies.operators(element)).options)

    generate(body, 100)
    assert steps == {-1, 1}
    assert options >= {"accumulate", "dtype", "nan", "ddof", "last"}
