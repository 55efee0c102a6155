"""How rows are mapped to a device: a pure function of their length and number, the types and the device."""

from __future__ import annotations

from dataclasses import dataclass

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.dtypes import LANES, LEAF_BYTES, VECTOR_BYTES
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.layout import SECTOR_BYTES
from lowlevel_reduce.strategy.whole import (
    MAX_CLUSTER,
    MAX_GRID,
    PORTABLE_CLUSTER,
    DeviceFacts,
    largest_cluster,
    power_of_two,
)

__all__ = ["ROW_STRATEGIES", "RowMapping", "choose_mapping"]

ROW_STRATEGIES = ("warp_rows", "block_rows", "split_rows", "turn_rows", "column_rows")
"""A warp for one row or several; a warp for each leaf of a row; several warps for each leaf; several leaves of a row
for each warp; and, for rows whose elements lie apart, neighbouring threads for neighbouring rows."""

_WARPS = 4
"""Warps of a block for short rows: `warps_of_short_rows` in cuda_src/rowops/warp_rows.cuh."""

_MOST_WARPS = 16
"""Warps of a block for other rows: `warps_of_row_block` in cuda_src/rowops/meeting.cuh."""

_CLUSTER_WARPS = 8
"""Warps of a block of a cluster, if the cluster may have as many blocks."""

_LEAST_LANE_BITS, _LANE_BITS, _VECTOR_BITS = 2, 5, 8

_WARPS_TO_FILL = 16
"""Warps of a multiprocessor that have room with several short rows each: with fewer, each has fewer rows."""

_WARPS_OF_A_STEP = 64
"""Warps of a multiprocessor that may have rows of up to eight lanes in one step alone, a vector for each lane; of 16
lanes 16 less, and of 32 again."""

_LANE_BITS_OF_TWO_STEPS = 3
"""Of more rows, those of so few lanes, which lie in whole vectors, are two steps of a warp; of long elements, whose
vectors have fewer, one more if three of four lanes have some."""

_STATIC_BYTES = 2048
"""Shared memory that a block of `turn_rows` uses besides what it keeps, at most."""

_COLUMN_STATIC_BYTES = 16384
"""The same of `column_rows`, with what its kernel has for other rows."""

_COLUMN_THREADS = 512
"""Threads of a block: `most_column_threads` in cuda_src/rowops/column_rows.cuh."""

_LEAVES_TO_SPLIT = 8
"""Leaves of a block whose warps share them, at most: a warp then has four steps, `most_split_steps` in
cuda_src/rowops/split_rows.cuh."""

_LEAVES_OF_MANY = 4
"""The same where there are more rows than multiprocessors."""

_SPLIT_FLAG = 64
"""What tells the kernel: `of_split_rows` there."""

_LATE_FLAG = 1 << 13
"""What tells it that the next launch is let in late: `SplitCut::late`."""

_SINGLE_FLAG = 128
"""What tells the kernel of blocks that each warp has a row: `of_single_rows` in cuda_src/rowops/block_rows.cuh."""

_COLUMN_CLUSTER = 8
"""The most blocks that share a tile of them."""

_COLUMN_FLAG, _STEPS = 32, 8

_SECTORS_BYTES = 2 * SECTOR_BYTES
"""Rows of a block that lie side by side have a sector at least, which memory is read by, and two as long as a cluster
has room for those."""


@dataclass(frozen=True)
class RowMapping:
    """One way to launch a row operation.

    Attributes
    ----------
    name : str
        One of `ROW_STRATEGIES`.
    warps : int
        Warps of a block.
    cluster : int
        Blocks that share a row, in a cluster if several.
    blocks : int
        Blocks in the grid.
    cut : int
        The word of that name of the kernel's argument.
    dynamic_shared_bytes : int
        For the leaves that are kept.
    reads : int
        How often a row is read: 2 if some of it cannot be kept.
    """

    name: str
    warps: int
    cluster: int
    blocks: int
    cut: int
    dynamic_shared_bytes: int = 0
    reads: int = 1

    @property
    def kernel(self) -> str:
        """Which kernel has its code, by the name of what else it does."""
        in_blocks = self.name in ("split_rows", "column_rows") or (self.name == "warp_rows" and self.cut & _SINGLE_FLAG)
        return "block_rows" if in_blocks else self.name

    @property
    def block_threads(self) -> int:
        """Threads in a block."""
        return self.warps * LANES


def choose_mapping(
    length: int,
    rows: int,
    facts: DeviceFacts,
    *,
    itemsize: int,
    held_arrays: int,
    writes: bool,
    shared_bytes: int,
    accumulator_bytes: int = 8,
    aligned: bool = False,
    strided: bool = False,
    beside: bool = False,
    strategy: str | None = None,
    cluster: int | None = None,
) -> RowMapping:
    """Choose how to go through `rows` rows of `length` elements.

    Parameters
    ----------
    length, rows : int
        Elements of a row, and rows; at least one row.
    facts : DeviceFacts
        The device, as the context shows it.
    itemsize : int
        Bytes of an element.
    held_arrays : int
        Arrays whose elements are kept between the reduction and the expression: 1 or 2.
    writes : bool
        Whether elements are written at all; if not, nothing is kept.
    shared_bytes : int
        The most shared memory of a block.
    accumulator_bytes : int
        Bytes of what a row is folded in.
    aligned, strided, beside : bool
        Whether rows lie in whole vectors; whether elements of a row lie apart, and whether elements of neighbouring
        rows lie side by side.
    strategy, cluster : optional
        Forced choices: the name, and the blocks that share a row (1, 2, 4, 8 or 16).

    Raises
    ------
    ValueError
        If there is no such strategy, or it does not suit the rows or the cluster.
    UnsupportedError
        If the device has no clusters, or a grid would have more blocks than a launch can.
    """
    vectors = -(-max(length, 1) * itemsize // VECTOR_BYTES)
    leaves = -(-vectors * VECTOR_BYTES // LEAF_BYTES)
    if strategy is not None and strategy not in ROW_STRATEGIES:
        raise ValueError(f"there is no strategy {shown(strategy)}; there is {', '.join(ROW_STRATEGIES)}")
    if cluster is not None and cluster not in (1, 2, 4, 8, MAX_CLUSTER):
        raise ValueError(f"a cluster has 1, 2, 4, 8 or {MAX_CLUSTER} blocks, not {shown(cluster)}")
    if cluster is not None and cluster > 1 and not facts.clusters:
        raise UnsupportedError("thread-block clusters need compute capability 9.0 or newer")
    held = power_of_two(leaves)
    largest = largest_cluster(facts)
    if strategy == "column_rows" or (strided and strategy is None):
        held_arrays = held_arrays if writes else 0
        return _in_columns(vectors, rows, facts, itemsize, held_arrays, shared_bytes, cluster, beside=beside)
    if strided:
        raise ValueError(f"rows whose elements lie apart take strategy 'column_rows', not {shown(strategy)}")
    name = strategy or _name_of(vectors, leaves, held, rows, facts, largest, cluster)
    if name == "warp_rows":
        if leaves > 1 or (cluster or 1) > 1:
            raise ValueError("strategy 'warp_rows' is for rows of at most 4 KiB, without clusters")
        is_long = itemsize >= 4 and vectors > LANES * 3 // 8
        twos = _LANE_BITS_OF_TWO_STEPS + is_long if aligned and accumulator_bytes <= 8 else 0
        return _short(vectors, rows, facts.multiprocessors, twos)
    if name in ("block_rows", "split_rows"):
        blocks = _cluster_of(held, rows, facts, largest, cluster)
        if name == "block_rows":
            return _in_blocks(held, rows, blocks)
        # Two launches side by side, but no two blocks of them on a multiprocessor; or the next one is let in late.
        is_alone = rows * blocks * 2 <= facts.multiprocessors
        least = shared_bytes * 9 // 16 if is_alone else 0
        late = not is_alone and blocks == 1
        return _split(vectors, held, rows, blocks, accumulator_bytes, least_shared=least, late=late)
    return _in_turns(held, rows, facts, largest, cluster, held_arrays if writes else 0, shared_bytes)


def _short(vectors: int, rows: int, multiprocessors: int, most_lane_bits_of_twos: int) -> RowMapping:
    bits = max((vectors - 1).bit_length(), _LEAST_LANE_BITS)
    lane_bits, step_bits = min(bits, _LANE_BITS), max(bits - _LANE_BITS, 0)
    is_single = step_bits > 1  # of rows of more than two steps a warp has one
    of_warp, fewer = 1 if is_single else 1 << (_VECTOR_BITS - bits), 0
    if step_bits == 0:
        of_step = LANES >> lane_bits
        if -(-rows // of_step) <= (_WARPS_OF_A_STEP - 16 * max(0, lane_bits - 3)) * multiprocessors:
            of_warp, fewer = of_step, 3
        elif lane_bits <= most_lane_bits_of_twos:
            of_warp, fewer = 2 * of_step, 2
    while fewer < 2 and of_warp > 1 and -(-rows // of_warp) * 2 <= _WARPS_TO_FILL * multiprocessors:
        of_warp, fewer = of_warp // 2, fewer + 1
    warps = -(-rows // of_warp)
    of_block = min(_WARPS, power_of_two(warps))
    cut = 1 | _SINGLE_FLAG if is_single else lane_bits | fewer << 4 | step_bits << 8
    return _checked(RowMapping("warp_rows", of_block, 1, -(-warps // of_block), cut))


def _name_of(
    vectors: int, leaves: int, held: int, rows: int, facts: DeviceFacts, largest: int, cluster: int | None
) -> str:
    # Where multiprocessors have few warps, several share a leaf: each step less is one less to wait for.
    blocks = _cluster_of(held, rows, facts, largest, cluster)
    # Of more rows than multiprocessors, blocks of 16 warps four times as many, of one leaf's eight warps eight times.
    of_each = 1 if blocks > 1 or held > _LEAVES_OF_MANY else 8 if 2 * LANES < vectors <= LANES * _STEPS else 4
    most = of_each * facts.multiprocessors
    if vectors > LANES and held <= _LEAVES_TO_SPLIT * blocks and rows * blocks <= most:
        return "split_rows"
    return "warp_rows" if leaves == 1 else "block_rows" if held <= _MOST_WARPS * largest else "turn_rows"


def _cluster_of(leaves: int, rows: int, facts: DeviceFacts, largest: int, cluster: int | None) -> int:
    """Return how many blocks share a row whose leaves are all held at once."""
    # Few rows are spread over as many blocks as the device has room for: what counts then is how soon a row is loaded.
    # Of a row of several blocks these are small, where a cluster may have as many: more rows are then under way.
    if cluster is not None:
        return cluster
    found = 1 if leaves <= _MOST_WARPS else min(largest, leaves // _CLUSTER_WARPS)
    # Twice as many as are portable, too, where devices have groups with room: on an H200 rms_norm of 8 and of 1 rows of
    # 131,072 elements of 16 bits takes 3.89 and 2.96 us by clusters of 16, and 5.10 and 3.75 by clusters of 8.
    if largest == PORTABLE_CLUSTER:
        largest = MAX_CLUSTER
    while found < largest and leaves // found > 4 and rows * found * 2 <= facts.multiprocessors:
        found *= 2
    return found


def _in_blocks(leaves: int, rows: int, cluster: int) -> RowMapping:
    warps = max(1, leaves // cluster)
    if warps > _MOST_WARPS:
        raise ValueError(f"strategy 'block_rows' holds {_MOST_WARPS * cluster} leaves of 4 KiB in {cluster} blocks")
    return _checked(RowMapping("block_rows", warps, cluster, rows * cluster, cluster))


def _split(
    vectors: int, leaves: int, rows: int, cluster: int, accumulator_bytes: int, *, least_shared: int, late: bool
) -> RowMapping:
    of_block = max(1, leaves // cluster)
    if of_block > _LEAVES_TO_SPLIT:
        held = _LEAVES_TO_SPLIT * cluster
        raise ValueError(f"strategy 'split_rows' holds {held} leaves of 4 KiB in {cluster} blocks")
    parts = min(_STEPS, _MOST_WARPS // of_block)  # warps that share a leaf
    cut = cluster | _SPLIT_FLAG | of_block << 8 | _STEPS // parts << 16 | (_LATE_FLAG if late else 0)
    warps = of_block * min(parts, power_of_two(-(-vectors // LANES)))  # of one leaf as many as it has steps
    shared = max(least_shared, warps * LANES * accumulator_bytes)
    return _checked(RowMapping("split_rows", warps, cluster, rows * cluster, cut, shared))


def _in_turns(
    leaves: int, rows: int, facts: DeviceFacts, largest: int, cluster: int | None, held_arrays: int, shared_bytes: int
) -> RowMapping:
    room = max(0, shared_bytes - _STATIC_BYTES) // (LEAF_BYTES * max(held_arrays, 1))  # leaves of a block

    def kept(blocks: int) -> bool:
        return -(-leaves // blocks) <= room // _MOST_WARPS * _MOST_WARPS

    if cluster is None:
        cluster = 1
        while cluster < largest and (
            rows * cluster * 2 <= facts.multiprocessors or not (kept(cluster) or not held_arrays)
        ):
            cluster *= 2
        if facts.clusters and cluster == PORTABLE_CLUSTER and held_arrays and not kept(cluster) and kept(MAX_CLUSTER):
            cluster = MAX_CLUSTER
    warps = min(_MOST_WARPS, max(1, leaves // cluster))
    turns = max(1, leaves // (cluster * warps))
    keeps = min(turns, room // warps) if held_arrays else 0
    cut = cluster | (turns.bit_length() - 1) << 5 | keeps << 10
    shared = keeps * warps * LEAF_BYTES * held_arrays
    reads = 2 if held_arrays and keeps < turns else 1
    return _checked(RowMapping("turn_rows", warps, cluster, rows * cluster, cut, shared, reads))


def _in_columns(
    vectors: int, rows: int, facts: DeviceFacts, itemsize: int, held_arrays: int, shared_bytes: int,
    cluster: int | None, *, beside: bool,
) -> RowMapping:  # fmt: skip
    span = min(-(-vectors // LANES), _STEPS)
    units = power_of_two(min(vectors, LANES)) * power_of_two(-(-vectors * VECTOR_BYTES // LEAF_BYTES))
    unit_bytes = span * VECTOR_BYTES * max(held_arrays, 1)
    room = max(0, shared_bytes - _COLUMN_STATIC_BYTES)
    columns = min(LANES if beside else 1, power_of_two(rows))
    if cluster is not None and cluster > min(_COLUMN_CLUSTER, units):
        raise ValueError(f"strategy 'column_rows' takes clusters of up to {min(_COLUMN_CLUSTER, units)} blocks here")
    most = cluster or min(_COLUMN_CLUSTER if facts.clusters else 1, units)
    # Two blocks on a multiprocessor, so that one loads while the other writes; and few tiles on all multiprocessors.
    blocks, half = cluster or 1, shared_bytes // 2 - _COLUMN_STATIC_BYTES

    def too_large() -> bool:
        return held_arrays > 0 and units // blocks * unit_bytes * columns > half

    while too_large() and columns * itemsize > _SECTORS_BYTES:
        columns //= 2
    while blocks < most and (
        too_large()
        or (units // blocks > _COLUMN_THREADS // columns and -(-rows // columns) * blocks * 2 <= facts.multiprocessors)
    ):
        blocks *= 2
    own = units // blocks  # of a block

    # A whole sector of neighbouring rows, and as many more as lanes take if what they read can be kept.
    while columns * itemsize > SECTOR_BYTES and own * unit_bytes * columns > room:
        columns //= 2
    groups = min(own, _COLUMN_THREADS // columns)
    # A thread takes as many vectors as elsewhere if there are blocks enough; and a warp is whole.
    while groups > 1 and own // groups * span < _STEPS and -(-rows // columns) * blocks >= 2 * facts.multiprocessors:
        groups //= 2
    columns = max(columns, LANES // groups)
    turns, threads = max(1, own // groups), columns * groups
    keeps = min(turns, room // (unit_bytes * threads)) if held_arrays else 0
    cut = _COLUMN_FLAG | (columns.bit_length() - 1) << 6 | (turns.bit_length() - 1) << 9 | keeps << 14 | blocks << 32
    return _checked(
        RowMapping(
            "column_rows", threads // LANES, blocks, -(-rows // columns) * blocks, cut,
            keeps * threads * unit_bytes if keeps else 0, 2 if held_arrays and keeps < turns else 1,
        )
    )  # fmt: skip


def _checked(mapping: RowMapping) -> RowMapping:
    if mapping.blocks > MAX_GRID:
        raise UnsupportedError(f"{mapping.blocks} blocks; a grid has at most {MAX_GRID}")
    return mapping
