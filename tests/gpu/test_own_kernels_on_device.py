"""A kernel of one's own on a GPU: timed beside a rung, and its sum is right there, too."""

import json

import pytest
from typer.testing import CliRunner

from lowlevel_reduce import driver
from lowlevel_reduce.cli.app import app
from lowlevel_reduce.driver import binding

SOURCE = """
__global__ void mine(const float* x, float* total, unsigned n)
{
    __shared__ float s[256];
    float v = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, s[0]);
}
"""


def test_it_is_timed_beside_a_rung(tmp_path):
    with binding.use("cuda"):
        if driver.why_unavailable() is not None:
            pytest.skip("there is no GPU, and a simulated one tells no time")
    path = tmp_path / "mine.cu"
    path.write_text(SOURCE, encoding="utf-8")
    command = ["ladder", "--source", str(path), "--grid", "1024", "--n", "16777216", "--beside", "v2_shared_sequential"]
    done = CliRunner().invoke(app, [*command, "--device", "cuda", "--json"])
    assert done.exit_code == 0, done.output
    times = json.loads(done.stdout)["times"]
    assert list(times) == ["mine", "v2_shared_sequential"]
    assert all(time["right"] and time["microseconds"] > 1 for time in times.values())
