"""Bugs planted in copies of the real kernels: a GPU would mostly get away with them; the simulated one must not.

Each bug is one or two places of a copy of ``cuda_src``, and each must show as a fault, or as bits that are not the
tree's. Which of the two is said with the bug, and the copy without the bug must pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.simulator import machine
from lowlevel_reduce.strategy import columns

STRONG_STORE = ("base/ptx.cuh", "st.relaxed.gpu.global.b128 [%0], v;", "st.global.b128 [%0], v;")
STRONG_LOAD = ("base/ptx.cuh", "ld.relaxed.gpu.global.b128 v, [%4];", "ld.global.b128 v, [%4];")

COLUMNS = np.random.default_rng(6).standard_normal((8400, 64)).astype(np.float32)
ARRAYS = {
    "whole": np.random.default_rng(5).standard_normal(150_003).astype(np.float32),
    "columns": COLUMNS,
    "few columns": COLUMNS[:1500, :20].copy(),
}


@dataclass(frozen=True)
class Bug:
    """Edits (file, old, new) of the sources, and the mapping whose kernel has the bug then.

    `sound` are edits that the copy without the bug has too; `caught` is a pattern of the fault's reason, None for a
    result that is not the tree's; `array` is which of ARRAYS is summed; `seed` decides the order of blocks and warps,
    and when asynchronous operations arrive; `cost` takes the place of `columns.cost`.
    """

    edits: tuple
    mapping: dict
    caught: str | None
    sound: tuple = ()
    array: str = "whole"
    seed: int | None = None
    cost: Callable | None = None


BUGS = {
    "no barrier between the warps' partials and their fold": Bug(
        edits=(
            (
                "tree/block.cuh",
                "if (lane == 0) slots[warp] = value;\n    __syncthreads();\n",
                "if (lane == 0) slots[warp] = value;\n",
            ),
        ),
        mapping={"strategy": "two_pass"},
        caught="data race: |uninitialised bytes of shared memory",
    ),
    "one set of slots for folds that follow each other": Bug(
        edits=(("tree/block.cuh", "shared.slots[turn & 1u]", "shared.slots[0]"),),
        mapping={"strategy": "block"},
        caught="data race: ",
    ),
    "a partial published by a weak store": Bug(
        edits=(STRONG_STORE,), mapping={"strategy": "tiles", "cluster": 1}, caught="data race: "
    ),
    # Partials in plain memory are right as long as the grid barrier releases them.
    "a ticket that does not release": Bug(
        edits=(("base/ptx.cuh", "atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32"),),
        mapping={"strategy": "cooperative"},
        caught="data race: reads what warp 0 of block .* wrote at PTX line",
        sound=(STRONG_STORE, STRONG_LOAD),
    ),
    "a wait for the ticket that does not acquire": Bug(
        edits=(
            ("base/ptx.cuh", "ld.acquire.gpu.global.u32 %0, [%1];", "ld.relaxed.gpu.global.u32 %0, [%1];"),
            ("tree/grid.cuh", "    __syncthreads();\n    __threadfence();\n", "    __syncthreads();\n"),
        ),
        mapping={"strategy": "cooperative"},
        caught="data race: reads what warp 0 of block .* wrote at PTX line",
        sound=(STRONG_STORE, STRONG_LOAD),
    ),
    "each block stores to its own rank": Bug(
        edits=(("tree/cluster.cuh", "&shared.slots[rank], 0, value,", "&shared.slots[rank], rank, value,"),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="its block exits before what is stored to its shared memory asynchronously has arrived",
    ),
    "a rank past the cluster": Bug(
        edits=(("tree/cluster.cuh", "&shared.slots[rank], 0, value,", "&shared.slots[rank], rank + 1, value,"),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="there is no block 4 in a cluster of 4",
    ),
    "two blocks at one place": Bug(
        edits=(("tree/cluster.cuh", "&shared.slots[rank], 0, value,", "&shared.slots[rank / 2], 0, value,"),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="data race: writes what an asynchronous operation of warp 0 of block .* wrote at PTX line",
    ),
    "the last elements that make no whole vector": Bug(
        edits=(
            (
                "tree/leaf.cuh",
                "uint32(min(rest, uint64(leaf_bytes)));",
                "uint32(min(rest, uint64(leaf_bytes))) & ~15u;",
            ),
        ),
        mapping={"strategy": "tiles"},
        caught=None,
    ),
    "the last partial": Bug(
        edits=(("tree/grid.cuh", "places[k] = number < partials.count", "places[k] = number + 1 < partials.count"),),
        mapping={"strategy": "two_pass"},
        caught=None,
    ),
    "rank 0 does not wait for what the others store": Bug(
        edits=(("tree/cluster.cuh", "    while (!__all_sync(0xffffffffu, have_arrived(&barrier))) {}\n", ""),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="uninitialised bytes of shared memory|data race: |its block exits before",
    ),
    "rank 0 looks once whether they have arrived": Bug(
        edits=(
            (
                "tree/cluster.cuh",
                "while (!__all_sync(0xffffffffu, have_arrived(&barrier))) {}",
                "have_arrived(&barrier);",
            ),
        ),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="uninitialised bytes of shared memory|data race: |its block exits before",
        seed=1,  # with it they arrive after a test that finds them under way
    ),
    "the first block of columns does not wait for what the others store": Bug(
        edits=(("columns/reduce_columns.cuh", "        else cluster_await(met.barrier);\n", ""),),
        mapping={"axis": 0},
        caught="uninitialised bytes of shared memory|data race: |its block exits before",
        array="few columns",
        cost=lambda way, of: way.folded_by != "cluster",
    ),
    "rank 0 waits for a block more": Bug(
        edits=(("tree/cluster.cuh", "(blocks - 1) * sizeof", "blocks * sizeof"),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="deadlock",
    ),
    "a wait that does not acquire what other blocks stored": Bug(
        edits=(("base/ptx_cluster.cuh", "try_wait.parity.acquire", "try_wait.parity.relaxed"),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="data race: reads what ",
    ),
    "nobody waits for rank 0 to have started": Bug(
        edits=(("tree/cluster.cuh", "        cluster_wait();  // every block of the cluster has started\n", ""),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="has exited|data race: |mbarrier",
    ),
    "an arrival that does not release the barrier's first state": Bug(
        edits=(("base/ptx_cluster.cuh", "cluster.arrive.release", "cluster.arrive.relaxed"),),
        mapping={"strategy": "cluster", "cluster": 4},
        caught="data race: ",
    ),
    "threads bring their columns while others have rounds that wait": Bug(
        edits=(("columns/reduce_columns.cuh", "        __syncthreads();  // no thread has rounds that wait\n", ""),),
        mapping={"axis": 0},
        caught="data race: ",
        array="few columns",
        cost=lambda way, of: (of.loads.width, way.parts, way.tile.columns),
    ),
    # One warp is held up: the others must not take away what it still waits for.
    "the last partial of a column is taken before all warps have seen it": Bug(
        edits=(
            (
                "rows/row_partials.cuh",
                "if (!by.by_warps) __syncthreads();  // all have seen the last partial",
                "//",
            ),
        ),
        mapping={"axis": 0},
        caught="deadlock: it waits at a barrier",
        sound=(
            (
                "rows/row_partials.cuh",
                "grid_await<Op>(slots + there - 1);\n",
                "for (int i = 0; i < 400 && threadIdx.x < lanes; ++i) __nanosleep(1000);\n"
                "        grid_await<Op>(slots + there - 1);\n",
            ),
        ),
        array="columns",
        cost=lambda way, of: (of.loads.width, -way.parts),  # more partials than a warp folds
    ),
}


def total(array, mapping, seed=None):
    """Sum with a plan of this mapping, on a GPU of its own: a driver keeps what it has loaded.

    In the natural order, unless a bug needs another: a bug need not show in every order; the block that counted last
    needs no acquire, for example.
    """
    with (
        lr.simulator.use("H200", seed=seed),
        lr.Context.primary(lr.Device(0)) as context,
        context.pushed(),
        lr.Stream.create(context) as stream,
        lr.plan("sum", shape=array.shape, dtype=array.dtype, context=context, **mapping) as plan,
    ):
        source, result = (
            lr.DeviceArray.from_numpy(array, stream),
            lr.DeviceArray.empty(plan.result_shape, plan.result_dtype, stream),
        )
        launch = plan.bind(stream)
        launch(source.pointer, result.pointer)
        value = result.numpy()
        launch.close()
        return value.tobytes()


def _least(cost, *problem, **options):
    """Cut columns in the way that costs least."""
    return columns.strategy_of(*min(columns.ways(*problem, **options), key=lambda each: cost(*each)))


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_planted_bug(edited, bug, monkeypatch):
    array = ARRAYS[bug.array]
    if bug.cost is not None:
        monkeypatch.setattr(columns, "choose_columns", partial(_least, bug.cost))
    expected = lr.tree.reduce(array, axis=bug.mapping.get("axis")).tobytes()
    edited(bug.sound)
    assert total(array, bug.mapping, bug.seed) == expected, "the copy without the bug is wrong"
    edited(bug.sound + bug.edits)
    if bug.caught is None:
        assert total(array, bug.mapping, bug.seed) != expected
        return
    with pytest.raises(machine.KernelFault, match=bug.caught) as caught:
        total(array, bug.mapping, bug.seed)
    assert "PTX line" in str(caught.value)
