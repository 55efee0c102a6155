"""The family of an operator and a type holds every kernel that any shape meets, on any device of its capability."""

import numpy as np
import pytest

from benchmarks.measure.selected import sources_of
from benchmarks.measure.shapes import drawn_layout
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.stubs import ANYWHERE
from lowlevel_reduce.strategy.whole import DeviceFacts

KINDS = [
    ("sum", "float32"),
    ("mean_var", "bfloat16"),
    ("argmax", "float64"),
    ("logsumexp", "float32"),
    ("dot", "float16"),
    ("dot", "float64"),
    ("max", "int8"),
    ("sum", "int32"),
]
CAPABILITIES = [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]


def facts(capability, multiprocessors):
    return DeviceFacts(capability, multiprocessors, capability >= (9, 0), cooperative=True)


def shapes_of(op, dtype, seed, count):
    return (drawn_layout(seed, number, op, dtype) for number in range(count))


@pytest.mark.parametrize("capability", CAPABILITIES, ids="sm_{0[0]}{0[1]}".format)
@pytest.mark.parametrize(("op", "dtype"), KINDS)
def test_random_shapes_meet_nothing_else(op, dtype, capability):
    kernels = {source.text for source in family_of(op, dtype=dtype, compute_capability=capability)}
    rng = np.random.default_rng(31)
    for case in shapes_of(op, dtype, 31, 60):
        device = facts(capability, int(rng.choice([1, 2, 7, 40, 63, 64, 132, 200])))
        outside = {source.entry for source in sources_of(case, device).values() if source.text not in kernels}
        assert not outside, case


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), [("sum", "float32"), ("mean_var", "bfloat16")])
def test_every_member_is_met_by_some_shape(op, dtype):
    met = {
        text.text for case in shapes_of(op, dtype, 7, 1500) for text in sources_of(case, facts((9, 0), 132)).values()
    }
    assert met == {source.text for source in family_of(op, dtype=dtype, compute_capability=(9, 0))}


@pytest.mark.parametrize("capability", CAPABILITIES, ids="sm_{0[0]}{0[1]}".format)
@pytest.mark.parametrize(("op", "dtype"), KINDS)
def test_it_has_at_most_16_kernels_and_4_twins_each_once(op, dtype, capability):
    kernels = family_of(op, dtype=dtype, compute_capability=capability)
    twins = [source for source in kernels if source.entry.endswith(ANYWHERE)]
    assert len(twins) <= 4
    assert 10 <= len(kernels) - len(twins) <= 16
    assert len({source.text for source in kernels}) == len(kernels)
    assert all(source.twin in kernels for source in kernels if source.twin is not None)
    assert any("cluster" in source.entry for source in kernels) == (capability >= (9, 0))


def test_options_have_families_of_their_own():
    texts = [
        {source.text for source in family_of("sum", dtype="float32", compute_capability=(9, 0), **options)}
        for options in ({}, {"accumulate": "compensated"}, {"where": True}, {"initial": True}, {"map": "x * x"})
    ]
    assert all(not one & other for i, one in enumerate(texts) for other in texts[:i])


def test_what_an_operator_does_not_take_is_refused():
    with pytest.raises(UnsupportedError, match="complex"):
        family_of("max", dtype="complex64", compute_capability=(9, 0))
    with pytest.raises(UnsupportedError, match="7.5 or newer, not 7.0"):
        family_of("sum", dtype="float32", compute_capability=(7, 0))
