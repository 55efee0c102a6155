"""The order in which kernels add: of the ladder's rungs, of CUB's and Triton's sums, and of a kernel with a swap."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from nested_trees import tree
from typer.testing import CliRunner

from lowlevel_reduce import UnsupportedError
from lowlevel_reduce.cli.app import app
from lowlevel_reduce.ladder import RUNGS
from lowlevel_reduce.workbench import LaunchOptions, read_source
from lowlevel_reduce.workbench.order import orders_of_kernel, orders_of_rung

KERNELS = Path(__file__).parent / "kernels"


def paired(values, combine=lambda left, right: (left, right)):
    """Fold adjacent pairs until one value is left; what is None is absent."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [b if a is None else a if b is None else combine(a, b) for a, b in pairs]
    return values[0]


def halved(values):
    """Fold the second half onto the first until one value is left."""
    while len(values) > 1:
        half = len(values) // 2
        pairs = zip(values[:half], values[half:], strict=True)
        values = [b if a is None else a if b is None else (a, b) for a, b in pairs]
    return values[0]


def chained(values):
    found = values[0]
    for value in values[1:]:
        found = value if found is None else found if value is None else (found, value)
    return found


def blocks(n, size):
    """Return the elements of each block of `size`, None behind the end."""
    return [[i if i < n else None for i in range(first, first + size)] for first in range(0, n, size)]


def filled(values, size):
    return [*values, *[None] * (size - len(values))]


def only(rung, n, block=32, **options):
    return orders_of_rung(RUNGS[rung], n, block, seeds=(None,), blocks=(), **options).tree


# What each rung does, written down independently: 50 elements in blocks of 32, then the partials in another pass.
RUNG_TREES = {
    "v0_atomic": chained(list(range(50))),
    "v1_shared_interleaved": paired(filled([paired(block) for block in blocks(50, 32)], 32)),
    "v2_shared_sequential": halved(filled([halved(block) for block in blocks(50, 32)], 32)),
    "reduce0": paired(filled([paired(block) for block in blocks(50, 32)], 32)),
    "reduce2": halved(filled([halved(block) for block in blocks(50, 32)], 32)),
    "warp_serial": chained([chained(block) for block in blocks(50, 32)]),
    "block_serial": chained([chained(block) for block in blocks(50, 32)]),
    "shared_tree_conflicting": chained([paired(block) for block in blocks(50, 32)]),
    "shared_tree": chained([halved(block) for block in blocks(50, 32)]),
}


@pytest.mark.parametrize("name", RUNG_TREES)
def test_a_rungs_tree_is_what_its_source_says(name):
    assert only(name, 50).same_order(tree(RUNG_TREES[name]))


def test_the_librarys_own_order_is_the_law():
    n, slots, lanes, steps = 150, 4, 32, 8
    places = [i if i < n else None for i in range(slots * lanes * steps)]
    vectors = [paired(places[first : first + slots]) for first in range(0, len(places), slots)]
    law = paired([paired(vectors[lane::lanes]) for lane in range(lanes)])
    with pytest.raises(UnsupportedError, match="recover the order by masks"):
        only("v8_one_tree", n)
    assert only("v8_one_tree", n, by="masks").same_order(tree(law))


@pytest.mark.parametrize("name", ["v4_float4", "v5_warp_shuffle", "v7_cluster", "two_pass", "grid_sync", "switched"])
def test_both_ways_recover_the_same_tree(name):
    traced = only(name, 40)
    assert traced.wrong_elements(40) == []
    assert traced.kinds == ("f32",)
    assert traced.same_order(only(name, 40, by="masks"))


def test_atomics_depend_on_the_schedule_and_trees_do_not():
    assert orders_of_rung(RUNGS["v0_atomic"], 128, 32, blocks=()).depends_on_schedule
    assert not orders_of_rung(RUNGS["v1_shared_interleaved"], 128, 32, blocks=()).depends_on_schedule


def test_an_order_may_depend_on_the_block():
    assert orders_of_rung(RUNGS["v2_shared_sequential"], 64, 32, seeds=(None,), blocks=(64,)).depends_on_launch
    assert not orders_of_rung(RUNGS["v1_shared_interleaved"], 64, 32, seeds=(None,), blocks=(64,)).depends_on_launch


def test_half_precision_is_traced_and_its_type_is_told():
    assert only("float16_narrow", 40).kinds == ("f16",)
    assert only("float16_promoted", 40).kinds == ("f32",)


def test_compensation_is_seen_as_what_it_is():
    found = only("kahan", 20)
    assert {"sub", "add"} <= {node.operation for node in found.nodes}
    assert found.wrong_elements(20) == list(range(20)), "each element occurs in the sum and in what corrects it"


@pytest.mark.parametrize(
    ("name", "words"),
    [("inner_axis", "no sum to one number"), ("v0_atomic_max_cas", "no sum"), ("tcu_reduce16", "a tensor core adds")],
)
def test_what_cannot_be_traced_is_refused(name, words):
    with pytest.raises(UnsupportedError, match=words):
        only(name, 64)


SERIAL = """
extern "C" __global__ void serial(const float* x, float* total, int n)
{
    if (threadIdx.x != 0 || blockIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum = BODY;
    *total = sum;
}
"""


def own(folder, body, name="own.cu"):
    path = folder / name
    path.write_text(SERIAL.replace("BODY", body), encoding="utf-8")
    return path


def orders(path, n=12, **options):
    source = read_source(path, "sm_90")
    kernel = source.kernel(None, options.pop("signature", None))
    launch = LaunchOptions(**{"block": 32, **options})
    return orders_of_kernel(source, kernel, None, n, launch, seeds=(None,), blocks=())


def test_a_planted_swap_is_found(tmp_path):
    plain = orders(own(tmp_path, "sum + x[i]")).tree
    swapped = orders(own(tmp_path, "sum + x[i == 4 ? 5 : i == 5 ? 4 : i]", "swapped.cu")).tree
    assert plain.same_order(tree(chained(list(range(12)))))
    assert swapped.same_order(tree(chained([0, 1, 2, 3, 5, 4, *range(6, 12)])))
    assert not swapped.same_order(plain)


def test_branches_see_what_elements_are_worth(tmp_path):
    assert orders(own(tmp_path, "x[i] > 1e30f ? sum : sum + x[i]")).tree.wrong_elements(12) == []
    assert orders(own(tmp_path, "x[i] > 6.5f ? sum : sum + x[i]")).tree.wrong_elements(12) == list(range(6, 12))


def test_fused_products_and_differences_are_named(tmp_path):
    formula = orders(own(tmp_path, "fmaf(x[i], 2.0f, sum)"), 2).tree.formula()
    assert formula == "fma(1, [2], mul(0, [2]))" or formula == "fma(1, [2], fma(0, [2], [0]))"
    assert orders(own(tmp_path, "fmaf(x[i], 1.0f, sum)"), 3).tree.formula() == "((0 + 1) + 2)"
    assert "sub(" in orders(own(tmp_path, "sum - x[i]"), 3).tree.formula()


def test_what_else_computes_with_elements_is_at_fault(tmp_path):
    from lowlevel_reduce.simulator.machine.control.faults import KernelFault

    with pytest.raises(KernelFault, match="div of elements is no summation|rcp of elements"):
        orders(own(tmp_path, "sum + 1.0f / x[i]"))


def test_integers_have_no_order(tmp_path):
    path = tmp_path / "integers.cu"
    path.write_text(SERIAL.replace("float", "int").replace("BODY", "sum + x[i]"), encoding="utf-8")
    with pytest.raises(UnsupportedError, match="the same in every order"):
        orders(path)


def test_a_sum_of_cub(tmp_path):
    """Compiled by nvcc, which brings CUB's headers: NVRTC has none of them."""
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc, which is needed to compile CUB's block sum to PTX")
    ptx = tmp_path / "cub_sum.ptx"
    command = ["nvcc", "-ptx", "-lineinfo", "-arch=sm_90", "-o", str(ptx), str(KERNELS / "cub_sum.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = orders(ptx, 100, block=64).tree
    # Each warp by shuffles from the neighbour at a growing distance, then one warp after the other; then the partials.
    sums = [chained([paired(block[first : first + 32]) for first in (0, 32)]) for block in blocks(100, 64)]
    assert found.same_order(tree(chained(sums)))


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION", "ignore::DeprecationWarning")
def test_a_sum_of_triton(tmp_path):
    pytest.importorskip(
        "triton", reason="Triton is not installed, whose compiler makes the PTX of kernels/triton_sum.py"
    )
    import runpy

    ptx = tmp_path / "triton_sum.ptx"
    ptx.write_text(runpy.run_path(str(KERNELS / "triton_sum.py"))["ptx"](), encoding="utf-8")
    found = orders(ptx, 100, block=64, grid=1, signature="const float*, float*, int, void*, void*").tree
    assert found.wrong_elements(100) == []
    assert found.depth == 7


def command(*arguments):
    return CliRunner().invoke(app, ["order", *map(str, arguments)])


def test_the_command(tmp_path):
    picture = tmp_path / "order.svg"
    done = command("v2_shared_sequential", "--n", 40, "--svg", picture, "--with", "v1_shared_interleaved")
    assert done.exit_code == 1, done.output
    assert "balanced: 39 additions in f32, at most 6 behind one another" in done.output
    assert "the order is the same with seed 1, seed 2, seed 3" in done.output
    assert "the order depends on the block size: another one with block 64" in done.output
    assert "v1_shared_interleaved adds in another order: the first adds" in done.output
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    same = command("v1_shared_interleaved", "--n", 40, "--with", "reduce0", "--json")
    assert same.exit_code == 0
    found = json.loads(same.stdout)
    assert found["same_order"]
    assert found["additions"] == 39


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "neither a file"),
        (("v0_atomic", "--svg", "x.png"), "does not end in .svg"),
        (("v0_atomic", "--by", "magic"), "trace or masks"),
        (("float16_narrow", "--n", 600), "room for"),
    ],
)
def test_the_command_refuses(arguments, words):
    done = command(*arguments)
    assert done.exit_code == 2
    assert words in done.output


def test_a_fault_is_told_at_the_line_of_the_source(tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text(
        'extern "C" __global__ void mine(const float* x, float* sum, unsigned n)\n{\n    __shared__ float s[64];\n'
        "    if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];\n    __syncthreads();\n"
        "    if (threadIdx.x == 0) *sum = s[0] + s[63];\n}\n"
    )
    done = command(file, "--n", 8)
    assert done.exit_code == 2
    assert "mine.cu:6: uninitialised read: block 0, thread 0: reads 4 uninitialised bytes" in done.output
    assert "PTX" not in done.output
