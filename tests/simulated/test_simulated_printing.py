"""printf in a kernel: what NVRTC makes of it prints on Python's stdout, in the order of the threads."""

import numpy as np
import pytest

from lowlevel_reduce import Buffer, simulator
from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import BoundKernel, Context, LaunchConfig, Library, Stream
from lowlevel_reduce.simulator.machine import KernelFault
from lowlevel_reduce.strategy.stubs import OPTIONS

SOURCE = r"""
extern "C" __global__ void where() { printf("%d:%u ", blockIdx.x, threadIdx.x); }
extern "C" __global__ void values(int* n)
{
    float x = 1.5f;
    double y = -2e10;
    long long z = -1;
    signed char c = -1;
    n[0] = printf("%d|%5u|%-4d|%+i|%x|%#llx|%lld\n", -7, 7u, 7, 7, 255, 1ull << 40, z);
    n[1] = printf("%f|%.2f|%8.1e|%g|%*d|%.*f\n", x, x, y, y, 5, 42, 1, x);
    n[2] = printf("%s|%6s|%c|%hhx|%hd|100%%\n", "text", "ab", 'c', c, 70000);
    n[3] = printf("nothing\n");
}
extern "C" __global__ void hexadecimal() { if (threadIdx.x == 3) printf("%a", 1.0); }
"""
VALUES = """\
-7|    7|7   |+7|ff|0x10000000000|-1
1.500000|1.50|-2.0e+10|-2e+10|   42|1.5
text|    ab|c|ff|4464|100%
nothing
"""


@pytest.fixture(scope="module")
def ptx():
    return compile_program(Program("printing", SOURCE, options=OPTIONS), "sm_90", output="ptx").data


def launch(ptx, name, seed, blocks=1, threads=1, letters="", arguments=()):
    with simulator.use("H200", seed=seed), Context.primary() as context, context.pushed():
        with Stream.create(context) as stream:
            config = LaunchConfig(blocks, threads)
            BoundKernel(Library.load(ptx).kernel(name), config, stream, letters)(*arguments)


def test_threads_print_in_their_order_and_in_another_by_a_seed(ptx, capsys):
    launch(ptx, "where", None, blocks=3, threads=64)
    ordered = capsys.readouterr().out.split()
    assert ordered == [f"{block}:{thread}" for block in range(3) for thread in range(64)]
    launch(ptx, "where", 2, blocks=3, threads=64)
    shuffled = capsys.readouterr().out.split()
    assert sorted(shuffled) == sorted(ordered)
    assert shuffled != ordered
    warps = [shuffled[i : i + 32] for i in range(0, 192, 32)]
    assert all(warp == ordered[ordered.index(warp[0]) :][:32] for warp in warps), "the lanes of a warp stay in order"
    launch(ptx, "where", 2, blocks=3, threads=64)
    assert capsys.readouterr().out.split() == shuffled, "a seed is an order"


def test_values_print_as_in_c(ptx, capsys):
    with simulator.use("H200"), Context.primary() as context, context.pushed():
        with Stream.create(context) as stream, Buffer.allocate(16, context) as counts:
            BoundKernel(Library.load(ptx).kernel("values"), LaunchConfig(1, 1), stream, "Q")(counts.pointer)
            found = np.empty(4, np.int32)
            stream.synchronize()
            counts.copy_to(found)
    assert capsys.readouterr().out == VALUES
    assert found.tolist() == [7, 8, 5, 0]


def test_a_conversion_that_is_not_known_is_refused(ptx):
    with pytest.raises(KernelFault, match="prints by '%a'") as caught:
        launch(ptx, "hexadecimal", None, threads=32)
    assert caught.value.thread == (3, 0, 0)
