"""Variants of the library as benchmarks make them: each with kernels, launches and options of its own."""

import shutil

import numpy as np
import pytest

import lowlevel_reduce as lr
from benchmarks.measure.harness import Inputs
from benchmarks.measure.problems import Case, pattern
from benchmarks.profile.variants import Variant
from lowlevel_reduce import Buffer
from lowlevel_reduce.compiler.sources import source_root

CASE = Case("sum", (3, 5000), 1)


@pytest.fixture
def inputs(stream):
    values = pattern(CASE.dtype).values[: CASE.size]
    with Buffer.allocate(values.nbytes, stream.context) as memory:
        memory.copy_from(values)
        yield Inputs(CASE, [memory.pointer])


def results(maker):
    ready = maker()
    try:
        ready.enqueue(0)
        return ready.results()[0]
    finally:
        ready.close()


def test_other_sources_make_other_kernels_and_leave_the_librarys_alone(inputs, stream, tmp_path):
    sources = tmp_path / "cuda_src"
    shutil.copytree(source_root(), sources)
    header = sources / "operators/operator_sum.cuh"
    finish = "Out finish(Acc a, const R&, int) { return narrow<Out>(a); }"
    text = header.read_text()
    assert finish in text
    header.write_text(text.replace(finish, finish.replace("(a)", "(a + a)")))
    expected = pattern(CASE.dtype).values[: CASE.size].astype(np.float64).reshape(CASE.shape).sum(1)
    found = [
        results(variant.maker(CASE, inputs, stream)) for variant in (Variant("doubled", sources), Variant("as is"))
    ]
    np.testing.assert_array_equal(found[0], 2 * expected)
    np.testing.assert_array_equal(found[1], expected)


def test_launches_and_constants_are_the_variants_own(context):
    variant = Variant("v", None, {"strategy.whole.PORTABLE_CLUSTER": 2}, {"shared_memory_carveout": 0})

    def launched(shape):
        with lr.plan("sum", shape=shape, axis=1, dtype="float32", context=context) as plan:
            ((_, config),) = plan.launches
            return config.shared_memory_carveout, config.cluster_blocks

    with variant.applied():
        assert launched((3, 20_000)) == (0, 1)
    assert launched((3, 20_000)) == (None, 4)


def test_an_option_of_a_plan(inputs, stream):
    with pytest.raises(ValueError, match="short_rows"):
        results(Variant("v", plan={"strategy": "short_rows"}).maker(CASE, inputs, stream))
