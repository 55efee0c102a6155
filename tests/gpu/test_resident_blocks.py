"""Grids that are larger than what the device holds at once: nobody waits for a block that cannot start."""

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.simulator import SimulatedDriver, by_name
from lowlevel_reduce.simulator.machine.control.faults import KernelFault

_numbers = itertools.count()
TILE_BYTES = 8 * 4096  # of a block of 256 threads
SEEDS = [None, 0, 1, 2, 3]


def data(tiles):
    """Return float32 values for so many tiles, the last one not full."""
    n = tiles * TILE_BYTES // 4 - 5
    return (np.random.default_rng(n).standard_normal(n) * 2.0 ** (np.arange(n) % 13)).astype(np.float32)


@contextlib.contextmanager
def simulated(cluster, clusters, seed):
    """Yield a context of a simulated device that holds `clusters` clusters of `cluster` blocks at once."""
    device = replace(
        by_name("H200"), multiprocessors=cluster, gpc_multiprocessors=(cluster,), blocks_per_multiprocessor=clusters
    )
    own, driver = f"small {next(_numbers)}", SimulatedDriver(device, seed=seed)
    binding.register(own, lambda: driver)
    with binding.use(own), Context.create() as context, context.pushed():
        yield context


@contextlib.contextmanager
def share(device):
    """Yield a green context of as few multiprocessors as a GPU can set apart."""
    try:
        green = Context.green(device, 1)
    except UnsupportedError as error:
        pytest.skip(str(error))
    with green:
        yield green


def launched(x, context, *, times=2, **options):
    """Reduce by a bound launch, some times over one workspace; return the last result and the grid's blocks."""
    with (
        Stream.create(context) as stream,
        lr.plan("sum", shape=x.shape, dtype=x.dtype, context=context, **options) as plan,
    ):
        source, result = lr.DeviceArray.from_numpy(x, stream), lr.DeviceArray.empty((), "float32", stream)
        bound = plan.bind(stream)
        for _ in range(times):
            bound(source.pointer, result.pointer)
        value = result.numpy()
        bound.close()
        (_, config), *_ = plan.launches
        return value, config.grid_blocks


@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_tiles_wait_for_nobody_who_cannot_start(machine, device, context, cluster):
    if not device.supports_clusters and cluster > 1:
        pytest.skip("thread-block clusters came with sm_90")
    options = {"strategy": "tiles", "cluster": cluster, "block_threads": 256}
    if machine == "simulated":
        x = data(5 * cluster)
        for seed in SEEDS:
            with simulated(cluster, 2, seed) as small:
                value, blocks = launched(x, small, **options)
                assert blocks == 6 * cluster, "three times what is resident"
                assert value.tobytes() == lr.tree.reduce(x).tobytes(), f"seed {seed}"
    else:
        x = data(2000)
        with share(device) as green:
            value, blocks = launched(x, green, times=20, **options)
            # 2048 threads, the most that a multiprocessor holds, are 8 blocks.
            assert blocks > 2 * 8 * green.multiprocessor_count
            assert value.tobytes() == lr.tree.reduce(x).tobytes()


def ending(x, seed):
    """Return the fault that a launch ends with where one cluster has room, "" without."""
    try:
        with simulated(1, 1, seed) as small:
            launched(x, small, strategy="tiles", cluster=1, block_threads=256)
    except KernelFault as fault:
        return str(fault)
    return ""


def test_a_simulated_device_holds_no_more_than_it_has_room_for(machine):
    """What the test before rests on: with room for one cluster, the one that folds may wait for ever."""
    if machine != "simulated":
        pytest.skip("a real GPU would not come back")
    x = data(3)
    natural, *shuffled = [ending(x, seed) for seed in SEEDS]
    assert natural == "", "in its natural order the cluster that folds is the last"
    assert any("deadlock" in fault for fault in shuffled)


def test_a_cooperative_grid_smaller_than_its_tiles(machine, device, context):
    options = {"strategy": "cooperative", "block_threads": 256}
    if machine == "simulated":
        x = data(9)
        for seed in SEEDS:
            with simulated(1, 2, seed) as small:
                value, blocks = launched(x, small, **options)
                assert blocks == 2, "as many as are resident"
                assert value.tobytes() == lr.tree.reduce(x).tobytes(), f"seed {seed}"
    else:
        x = data(2000)
        with share(device) as green:
            value, blocks = launched(x, green, times=20, **options)
            assert blocks <= 8 * green.multiprocessor_count
            assert value.tobytes() == lr.tree.reduce(x).tobytes()
