"""The calling conventions of one's own kernels: types from mangled names and declarations, and what they mean."""

import numpy as np
import pytest

from lowlevel_reduce import UnsupportedError
from lowlevel_reduce.workbench.convention import base_name, convention_of, declared_types, mangled_types
from lowlevel_reduce.workbench.launching import LaunchOptions
from lowlevel_reduce.workbench.missing import Weights, wrong_elements


@pytest.mark.parametrize(
    ("entry", "types"),
    [
        ("_Z9reduce_v0PKfPfi", ["const float*", "float*", "int"]),
        ("_Z1kPdPKdm", ["double*", "const double*", "unsigned long"]),
        ("_Z2ktIfEvPKT_PS0_i", ["const float*", "float*", "int"]),
        ("_Z2ktIfLi256EEvPT_PKS0_m", ["float*", "const float*", "unsigned long"]),
        ("_Z4halfPK6__halfPfj", ["const __half*", "float*", "unsigned int"]),
        ("_Z4gridPKfPfmPv", ["const float*", "float*", "unsigned long", "void*"]),
        ("_Z4gridPKfPfmS1_", ["const float*", "float*", "unsigned long", "float*"]),
        ("plain", None),
        ("_Z3oddU4what", None),
        ("_ZN4ours4mineEPKfPfi", ["const float*", "float*", "int"]),
    ],
)
def test_types_of_a_mangled_name(entry, types):
    assert mangled_types(entry) == types


def test_names_of_the_source():
    assert base_name("_Z9reduce_v0PKfPfi") == "reduce_v0"
    assert base_name("_ZN4ours4mineEPKfPfi") == "mine"
    assert base_name("plain") == "plain"


@pytest.mark.parametrize(
    ("declaration", "types"),
    [
        ("(const float* __restrict__ x, float *out, size_t n)", ["const float*", "float*", "size_t"]),
        ("(float const* x, float* out, unsigned int n)", ["const float*", "float*", "unsigned int"]),
        ("(const float*, float*, int)", ["const float*", "float*", "int"]),
        ("(const int n, const unsigned* x, unsigned long long* y)", ["int", "const unsigned*", "unsigned long long*"]),
    ],
)
def test_types_of_a_declaration(declaration, types):
    source = f'// __global__ void k(int)\nextern "C" __global__ void __launch_bounds__(256) k{declaration} {{}}'
    assert declared_types(source, "k") == types
    assert declared_types(source, "other") is None


@pytest.mark.parametrize(
    ("types", "roles", "signature", "dtype", "result"),
    [
        (["const float*", "float*", "int"], ("input", "result", "count"), "QQi", "float32", "float32"),
        (["size_t", "double*", "const float*"], ("count", "result", "input"), "QQQ", "float32", "float64"),
        (["const int*", "long long*", "unsigned", "unsigned*"], ("input", "result", "count", "workspace"), "QQIQ",
         "int32", "int64"),
        (["const float*", "float*", "int", "void*", "void*"], ("input", "result", "count", "workspace", "workspace"),
         "QQiQQ", "float32", "float32"),
        (["const half*", "float*", "long", "void*"], ("input", "result", "count", "workspace"), "QQqQ", "float16",
         "float32"),
    ],
)  # fmt: skip
def test_a_convention(types, roles, signature, dtype, result):
    found = convention_of("k", types)
    assert (found.roles, found.signature, found.dtype, found.result) == (roles, signature, dtype, result)
    assert found.folds_itself == (dtype == result)


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (["float*", "float*", "int"], "no pointer to const"),
        (["const float*", "int"], "no pointer for the result"),
        (["const float*", "float*"], "no integer"),
        (["const float*", "const float*", "float*", "int"], "parameter 2 of k is 'const float\\*'"),
        (["const float**", "float*", "int"], "parameter 1"),
        (["const float*", "float*", "int", "int"], "parameter 4"),
        (["const Thing*", "float*", "int"], "parameter 1"),
        (["const float*", "float*", "double"], "parameter 3"),
    ],
)
def test_what_fits_no_convention_is_told_apart(types, words):
    with pytest.raises(UnsupportedError, match=words):
        convention_of("k", types)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": 0}, "block is 1 or more"),
        ({"per_thread": 0}, "per_thread is 1"),
        ({"cluster": 0}, "cluster is 1"),
        ({"grid": 0}, "the grid has 1 block"),
        ({"shared_bytes": -1}, "shared memory"),
        ({"result": "sum"}, "one of auto, total, partials"),
    ],
)
def test_options_that_no_launch_has(options, words):
    with pytest.raises(ValueError, match=words):
        LaunchOptions(**options)


def test_grids():
    options = LaunchOptions(block=128, per_thread=4, cluster=4)
    assert options.blocks(4099, first=True) == 12  # 9 rounded up to whole clusters
    assert LaunchOptions(grid=7).blocks(10**6, first=True) == 7
    assert LaunchOptions(grid=7).blocks(1000, first=False) == 4
    assert LaunchOptions().blocks(0, first=True) == 1


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, None),
        ({5: 0}, Weights(5, 5, 0)),
        ({0: 2, 40: 0}, Weights(0, 40, 2)),
        ({96: 0, 97: 0, 98: 0}, Weights(96, 98, 0)),
        (dict.fromkeys(range(99), 3), Weights(0, 98, 3)),
    ],
)
def test_elements_that_are_not_added_once_are_found(weights, expected):
    factors = np.ones(99)
    for place, weight in weights.items():
        factors[place] = weight
    runs = []

    def run(values):
        runs.append(values)
        return float(values @ factors)

    assert wrong_elements(run, 99, np.float32) == expected
    assert len(runs) <= 2 * 8


def test_weights_in_words():
    assert str(Weights(3, 3, 0)) == "element 3 is never added"
    assert str(Weights(3, 9, 2)) == "element 3 is added twice, and element 9 is the last that is not added once"
    assert str(Weights(3, 3, 5)) == "element 3 is added 5 times"
