"""The manifest: a role for every kernel of the choice, rules for grids, and the fields of arguments in order."""

import struct

import pytest

from lowlevel_reduce import operators
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.kernel_wheel.choice import ARCHITECTURES, CHOICE, ROW_CHOICE, chosen
from lowlevel_reduce.kernel_wheel.manifest import argument_layouts, grid_rule, role_of
from lowlevel_reduce.prebuilding import capability_of
from lowlevel_reduce.rowops.family import row_family
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.fields import signature
from lowlevel_reduce.strategy.stubs import ANYWHERE
from lowlevel_reduce.strategy.whole import DeviceFacts, choose


def test_every_kernel_of_the_choice_has_a_role_and_whole_arrays_a_rule():
    for architecture in ARCHITECTURES:
        for op, dtype in [(op, dtype) for op, dtypes in CHOICE.items() for dtype in dtypes]:
            for source in family_of(op, dtype=dtype, compute_capability=capability_of(architecture)):
                role = role_of(source)
                assert source.entry.endswith((f"_{role}", f"_{role}{ANYWHERE}"))
                assert (grid_rule(source) is not None) == (
                    role in ("block", "cluster", "few_tiles", "tiles", "whole", "rows")
                )


def test_the_choice_names_operators_and_types_that_there_are():
    for op, dtype in chosen():
        if op in ROW_CHOICE:
            assert row_family(op, dtype=dtype)
        else:
            operators.resolve(op).types(element_type(dtype), None, None)
    assert len(set(chosen())) == sum(map(len, (*CHOICE.values(), *ROW_CHOICE.values())))


@pytest.mark.parametrize("kind", ["whole", "shaped", "short_rows"])
def test_fields_are_those_of_the_argument(kind):
    layout = argument_layouts()[kind]
    fields = layout["fields"]
    assert layout["bytes"] == struct.calcsize("<" + signature(kind))
    widths = {"uint8": 1, "uint32": 4, "uint64": 8, "int64": 8}
    ends = [field["offset"] + widths[field["type"]] for field in fields]
    assert [0, *ends] == [*(field["offset"] for field in fields), layout["bytes"]]  # one after the other, without gaps
    assert len({field["name"] for field in fields}) == len(fields)
    assert [field["name"] for field in fields[:5]] == ["elements", "result", "second", "workspace", "device_length"]
    signed = [field["name"] for field in fields if field["type"] == "int64"]
    assert all(name.startswith(("low", "high", "step", "result_stride")) or "stride" in name for name in signed)
    assert ("low" in signed) == (kind != "whole")


FAMILY = family_of("sum", dtype="float32", compute_capability=(9, 0))


def whole_rule(role, capability):
    return [
        grid_rule(source)
        for source in family_of("sum", dtype="float32", compute_capability=capability)
        if role_of(source) == role and not source.entry.endswith(ANYWHERE)
    ]


@pytest.mark.parametrize("leaves", [1, 7, 8, 16, 17, 64, 65, 1000, 16 * 4096, 16 * 4096 + 1, 1_000_000])
def test_rules_say_what_the_policy_does(leaves):
    facts = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
    (anywhere,) = (grid_rule(each) for each in FAMILY if role_of(each) == "whole")
    (few,) = whole_rule("few_tiles", (9, 0))
    assert few["most_leaves"] == few["threads"] * few["leaves_per_block"]
    some = [few] if leaves <= few["most_leaves"] else []
    for rule in (*some, *whole_rule("tiles", (9, 0)), anywhere):
        chosen = choose(leaves, facts, strategy="tiles", block_threads=rule["threads"])
        tiles = -(-leaves // rule["leaves_per_block"])
        run = rule["partials_per_run"]
        folding = 0 if tiles == 1 else 1 if tiles <= 2 * run else -(-tiles // run)
        assert (chosen.blocks, chosen.partials, chosen.tiles_per_block) == (tiles + folding, tiles, 1)
    for role in ("block", "cluster"):
        (rule,) = whole_rule(role, (9, 0))
        if leaves <= rule["most_leaves"]:
            cluster = rule.get("cluster")
            chosen = choose(leaves, facts, strategy=role, cluster=cluster, block_threads=rule["threads"])
            assert (chosen.blocks, chosen.tiles_per_block) == (rule.get("cluster", 1), rule["count"])
