"""One's own kernels on the simulator: what is wrong or slow is told at the line of the source where it is."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lowlevel_reduce import CompileError, UnsupportedError, simulator
from lowlevel_reduce.cli.app import app
from lowlevel_reduce.cli.own import nearest
from lowlevel_reduce.driver import Context, Graph
from lowlevel_reduce.ladder import RUNGS, run
from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.workbench import LaunchOptions, Place, examine, read_source, time_us
from lowlevel_reduce.workbench.checking import check
from lowlevel_reduce.workbench.examine import made_up
from lowlevel_reduce.workbench.launching import ready

TREE = """\
__device__ float both(float a, float b) { return a + b; }

__global__ void mine(const float* x, float* partial, int n)
{
    __shared__ float s[128];
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k)
            s[t] = both(s[t], s[t + k]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = s[0];
}
"""
SMALL = LaunchOptions(block=128)
N = 1027


def written(folder, text, name="mine.cu"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def examined(folder, text, options=SMALL, n=N, **names):
    source = read_source(written(folder, text), "sm_90")
    return examine(source, source.kernel(names.get("entry"), names.get("signature")), None, n, options)


def edited(old, new):
    assert TREE.count(old) == 1
    return TREE.replace(old, new)


def test_a_right_kernel_is_right_and_folds_its_own_partials(tmp_path):
    found = examined(tmp_path, TREE)
    assert found.right
    assert found.value == found.reference
    assert found.grids == (9, 1)


@pytest.mark.parametrize(
    ("old", "new", "kind", "line"),
    [
        ("        __syncthreads();\n    }", "    }", "race", 12),
        ("s[t] = i < n ? x[i] : 0.0f;", "if (i < n) s[t] = x[i];", "uninitialised read", 12),
        ("i < n ? x[i] : 0.0f", "i + 1 < n ? x[i] : 0.0f", "wrong sum", 16),
        ("s[t + k]);", "s[t + k + 64]);", "out of bounds", 12),
        ("if (t < k)\n", "if (t < k) __syncthreads();\n        if (t < k)\n", "deadlock", 14),
    ],
)
def test_a_planted_fault_is_told_at_its_line(tmp_path, old, new, kind, line):
    found = examined(tmp_path, edited(old, new))
    first = found.findings[0]
    assert not found.right
    assert (first.kind, first.place) == (kind, Place("mine.cu", line))
    assert first.text == edited(old, new).split("\n")[line - 1].strip()


def test_both_accesses_of_a_race_are_told_in_the_source(tmp_path):
    (first,) = examined(tmp_path, edited("        __syncthreads();\n    }", "    }")).findings
    assert "PTX" not in first.message
    assert "mine.cu:12 (s[t] = both(s[t], s[t + k]);)" in first.message


def test_the_elements_that_are_lost_are_named(tmp_path):
    (first, *_) = examined(tmp_path, edited("i < n ? x[i]", "i < n / 4 * 4 ? x[i]")).findings
    assert "element 1024 is never added, and element 1026 is the last" in first.message
    assert "the result is written at mine.cu:16; the elements are read at mine.cu:8" in first.message


def test_costs_are_told_where_they_arise_and_add_up(tmp_path):
    step = "int j = 2 * t * (int(blockDim.x) / 2 / k);\n        if (j < blockDim.x) s[j] = both(s[j], s[j + 64 / k]);"
    text = edited("if (t < k)\n            s[t] = both(s[t], s[t + k]);", step)
    found = examined(tmp_path, text)
    assert found.right, found.findings
    conflicts = [finding.place for finding in found.findings if finding.kind == "bank conflicts"]
    assert conflicts == [Place("mine.cu", 12)]
    total = sum(found.costs.values(), Counters())
    for name in ("bank_conflicts", "global_loads", "barriers", "divergent_branches", "instructions", "bytes_read"):
        assert getattr(total, name) == getattr(found.counters, name), name


def test_counters_by_line_change_no_counter(tmp_path):
    path = written(tmp_path, RUNGS["v2_shared_sequential"].source.read_text(encoding="utf-8"))
    source = read_source(path, "sm_90")
    found = examine(source, source.kernel("v2_shared_sequential"), None, N, SMALL, seeds=(None,))
    with simulator.use(), Context.primary() as context, context.pushed():
        (record,) = run([RUNGS["v2_shared_sequential"]], n=N, block=128, context=context)
    # The ladder's rung is compiled with other options; what memory and barriers see does not depend on those.
    for name in ("global_loads", "shared_requests", "barriers", "bytes_read", "bank_conflicts"):
        assert getattr(found.counters, name) == record.counters[name], name


def test_atomics_clusters_and_second_kernels(tmp_path):
    text = """
__global__ void block_sums(const float* x, double* sums, unsigned n)
{
    extern __shared__ double d[];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    d[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k; k /= 2) {
        if (threadIdx.x < k) d[threadIdx.x] += d[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = d[0];
}
__global__ void fold(unsigned n, const double* sums, double* total)
{
    if (threadIdx.x != 0) return;
    double s = 0;
    for (unsigned i = 0; i < n; ++i) s += sums[i];
    *total = s;
}
__global__ void atomics(const float* x, float* total, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) atomicAdd(total, x[i]);
}
"""
    source = read_source(written(tmp_path, text), "sm_90")
    sums, fold, atomics = (source.kernel(name) for name in ("block_sums", "fold", "atomics"))
    assert examine(source, sums, fold, N, SMALL, seeds=(None,)).right
    alone = examine(source, atomics, None, N, replace(SMALL, cluster=2), seeds=(None,))
    assert alone.right
    assert alone.grids == (10,)
    with pytest.raises(UnsupportedError, match="name the kernel that folds them by --then"):
        examine(source, sums, None, N, SMALL)
    with pytest.raises(UnsupportedError, match="fold reads float64, and atomics leaves float32"):
        examine(source, atomics, fold, N, SMALL)
    with pytest.raises(UnsupportedError, match="has no clusters"):
        examine(source, atomics, None, N, replace(SMALL, cluster=2), "A100")
    with pytest.raises(UnsupportedError, match="more than one kernel: it has .*; name one by --entry"):
        source.kernel(None)


def test_a_kernel_with_a_workspace_runs_cooperatively(tmp_path):
    text = RUNGS["grid_sync"].source.read_text(encoding="utf-8")
    types = "const float*, float*, size_t, void*"
    assert examined(tmp_path, text, replace(SMALL, cooperative=True), signature=types).right
    with pytest.raises(UnsupportedError, match="parameter 1 of grid_sync is 'const Element\\*'"):
        examined(tmp_path, text)


@pytest.mark.parametrize("partials", [True, False])
def test_a_run_can_be_captured_and_takes_turns_with_copies_of_its_input(tmp_path, partials):
    text = TREE if partials else TREE.replace("partial[blockIdx.x] = s[0]", "atomicAdd(partial, s[0])")
    source = read_source(written(tmp_path, text), "sm_90")
    kernel = source.kernel(None)
    values, reference = made_up(N, "float32")
    with simulator.use(), Context.primary() as context, context.pushed():
        with ready(source, kernel, None, N, SMALL, context) as made:
            assert made.sum(values) == reference
            assert made.partials == partials
            made.copy(2 * values, 3)
            with Graph.capture(made.stream) as graph:
                made.once(1)
            with graph, graph.instantiate() as executable:
                for _ in range(2):
                    executable.launch(made.stream)
                    assert made.result() == 2 * reference
            made.once(3)
            assert made.result() == reference, "three inputs: it is the first one's turn"
        assert simulator.selected().leaks().get("allocations", 0) == 0


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0), "H200"), ("NVIDIA A100-SXM4-40GB", (8, 0), "A100"),
        ("NVIDIA L40", (8, 9), "RTX 4090"), ("NVIDIA A10", (8, 6), "A100"), ("NVIDIA B300", (10, 3), "B200"),
        ("Tesla V100", (7, 0), "T4"),
    ],
)  # fmt: skip
def test_the_simulated_device_that_is_most_like_a_gpu(name, capability, expected):
    assert nearest(name, capability) == expected


def test_times_are_asked_of_a_gpu(tmp_path):
    source = read_source(written(tmp_path, TREE), "sm_90")
    with simulator.use(), Context.primary() as context, pytest.raises(UnsupportedError, match="tells no time"):
        time_us(source, source.kernel(None), None, N, SMALL, context)


def test_headers_beside_the_source_and_its_ptx(tmp_path):
    written(tmp_path, TREE.replace("__global__ void mine", "static __device__ void inner"), "inner.cuh")
    outer = '#include "inner.cuh"\n__global__ void mine(const float* x, float* p, int n) { inner(x, p, n); }\n'
    assert examined(tmp_path, outer).right
    source = read_source(written(tmp_path, TREE), "sm_90")
    ptx = read_source(written(tmp_path, source.image.decode(), "mine.ptx"), "sm_90")
    again = examine(ptx, ptx.kernel("mine"), None, N, SMALL, seeds=(None,))
    assert again.right
    assert Place("mine.cu", 12) in again.costs
    with pytest.raises(UnsupportedError, match="runs on the simulator"):
        read_source(tmp_path / "mine.ptx", "sm_90", output="cubin")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("#include <cstdio>\n" + TREE, CompileError, "ifndef __CUDACC_RTC__"),
        (TREE.replace("s[t + k]", "s[u]"), CompileError, r"mine\.cu:12"),
        ("template <typename T> __global__ void k(const T* x, T* y, int n) {}", UnsupportedError, "no instance"),
        ("__device__ int x;", CompileError, "holds no kernel"),
    ],
)
def test_sources_that_cannot_be_taken(tmp_path, text, error, words):
    with pytest.raises(error, match=words):
        read_source(written(tmp_path, text), "sm_90")
    with pytest.raises(UnsupportedError, match="neither CUDA"):
        read_source(written(tmp_path, text, "mine.txt"), "sm_90")


@pytest.mark.parametrize("name", ["mine.cu", "mine.ptx"])
def test_a_source_that_is_not_in_utf8_is_named(tmp_path, name):
    path = tmp_path / name
    path.write_bytes("// größer\n".encode("latin-1"))
    for read in (lambda: read_source(path, "sm_90"), lambda: check(path)):
        with pytest.raises(UnsupportedError, match=f"{name} is not text in UTF-8.*0xf6"):
            read()


def test_the_command(tmp_path):
    path = written(tmp_path, TREE)
    command = ["ladder", "--source", str(path), "--block", "128", "--n", str(N), "--device", "simulator"]
    done = CliRunner().invoke(app, [*command, "--beside", "v5_warp_shuffle"])
    assert done.exit_code == 0, done.output
    assert "the sum is right" in done.output
    assert re.search(r"^ counted +mine +v5_warp_shuffle *$", done.output, re.MULTILINE)
    table = done.output[done.output.index(" counted") :]
    assert max(map(len, table.splitlines())) <= 80
    objects = json.loads(CliRunner().invoke(app, [*command, "--beside", "v5_warp_shuffle", "--json"]).stdout)
    assert objects["right"]
    assert objects["beside"]["rung"] == "v5_warp_shuffle"
    assert objects["times"] is None


def test_the_command_with_a_planted_fault(tmp_path):
    path = written(tmp_path, edited("        __syncthreads();\n    }", "    }"))
    done = CliRunner().invoke(app, ["ladder", "--source", str(path), "--block", "128", "--device", "simulator"])
    assert done.exit_code == 1
    assert "mine.cu:12: error: race: block 0" in done.output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--beside", "v99"], "no rung 'v99'"),
        (["--system", "A"], "--system is of the ladder's rungs"),
        (["--result", "sum"], "one of auto, total, partials"),
        (["--entry", "other"], "has no kernel 'other'"),
    ],
)
def test_the_command_refuses(tmp_path, more, words):
    done = CliRunner().invoke(app, ["ladder", "--source", str(written(tmp_path, TREE)), "--device", "simulator", *more])
    assert done.exit_code == 2
    assert words in done.output
