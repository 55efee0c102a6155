"""The rules of a manifest, followed as a runtime without Python would, on a simulated GPU: the bits are the tree's."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import operators, simulator
from lowlevel_reduce.driver import BoundKernel, LaunchConfig, Library
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.kernel_wheel.manifest import argument_layouts, grid_rule, role_of
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.stubs import ANYWHERE
from lowlevel_reduce.strategy.whole import HEADER_BYTES, MIN_TILE_LEAVES, slot_bytes

SUM = operators.resolve("sum")
TYPES = SUM.types(element_type("float32"), None, None)
LEAF = 1024  # elements


def ceil_div(a, b):
    return -(-a // b)


def grid_of(rule, length, rows):
    """Return blocks, blocks of a cluster, and the field `count`, as docs/embedding.md has it."""
    leaves = ceil_div(length, LEAF)
    if rule["rule"] == "tiles":
        tiles = max(1, ceil_div(leaves, rule["leaves_per_block"]))
        run = rule["partials_per_run"]
        folding = 0 if tiles == 1 else 1 if tiles <= 2 * run else ceil_div(tiles, run)
        return tiles + folding, 1, tiles
    if rule["rule"] == "rows":
        return ceil_div(rows, rule["rows_per_block"]), 1, rule["count"]
    assert leaves <= rule["most_leaves"]
    blocks = rule.get("cluster", 1)
    return blocks, blocks, rule["count"]


def launch(kernel, config, stream, kind, **values):
    """Launch with an argument whose fields are named; those that are not are zero."""
    fields = argument_layouts()[kind]["fields"]
    assert values.keys() <= {field["name"] for field in fields}
    letters = "".join("Q" if field["type"] == "uint64" else "q" for field in fields)
    bound = BoundKernel(kernel, config, stream, letters, as_struct=True)
    bound(*(values.get(field["name"], 0) for field in fields))


@pytest.mark.parametrize(
    ("role", "shape"),
    [("block", (2000,)), ("cluster", (9000,)), ("few_tiles", (17_500,)), ("tiles", (17_500,)), ("rows", (9, 1280))],
)
def test_a_launch_by_the_rule_gives_the_bits(role, shape, kept_kernels):
    source = next(
        source
        for source in family_of("sum", dtype="float32", compute_capability=(9, 0))
        if role_of(source) == role and not source.entry.endswith(ANYWHERE)
    )
    x = np.random.default_rng(31).standard_normal(shape, dtype=np.float32)
    rows, length = (1, *shape)[-2:]
    rule = grid_rule(source)
    blocks, cluster, count = grid_of(rule, length, rows)
    slots = ceil_div(ceil_div(length, LEAF), MIN_TILE_LEAVES)
    with simulator.use("H200"), lr.Context.primary() as context, context.pushed(), lr.Stream.create() as stream:
        ptx = compile_kernel(source, "sm_90", output="ptx")
        kernel = Library.load(ptx.data, name=source.entry).kernel(source.entry)
        src = lr.DeviceArray.from_numpy(x, stream)
        out = lr.DeviceArray.from_numpy(np.zeros(rows, np.float32), stream)
        space = lr.DeviceArray.from_numpy(
            np.zeros(HEADER_BYTES + slot_bytes(SUM.size(TYPES)) * slots, np.uint8), stream
        )
        fields = {
            "elements": src.pointer,
            "result": out.pointer,
            "workspace": space.pointer,
            "length": length,
            "rows": rows,
            "count": count,
        }
        kind = "whole"
        if role == "rows":
            kind = "shaped"
            fields |= {"high": x.nbytes, "kept.count": 1, "kept.size[0]": rows, "kept.stride[0]": 4 * length}
            fields |= {"reduced.count": 1, "reduced.size[0]": length, "reduced.stride[0]": 4, "result_stride[0]": 1}
        config = LaunchConfig(blocks, rule["threads"], cluster=cluster if cluster > 1 else None)
        launch(kernel, config, stream, kind, **fields)
        found = out.numpy()
    expected = np.asarray([lr.tree.reduce(row) for row in x.reshape(rows, length)])
    assert found.tobytes() == expected.tobytes()
