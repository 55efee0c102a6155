"""The manifest: a role for every kernel of the choice, rules for grids, and the fields of arguments in order."""

import struct

import pytest

from lowlevel_reduce import operators
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.kernel_wheel.choice import ARCHITECTURES, CHOICE, chosen
from lowlevel_reduce.kernel_wheel.manifest import argument_layouts, grid_rule, role_of
from lowlevel_reduce.prebuilding import capability_of
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.stubs import ANYWHERE, signature


def test_every_kernel_of_the_choice_has_a_role_and_whole_arrays_a_rule():
    for architecture in ARCHITECTURES:
        for op, dtype in chosen():
            for source in family_of(op, dtype=dtype, compute_capability=capability_of(architecture)):
                role = role_of(source)
                assert source.entry.endswith((f"_{role}", f"_{role}{ANYWHERE}"))
                assert (grid_rule(source) is not None) == (role in ("block", "cluster", "tiles", "rows"))


def test_the_choice_names_operators_and_types_that_there_are():
    for op, dtype in chosen():
        operators.resolve(op).types(element_type(dtype), None, None)
    assert len(set(chosen())) == sum(map(len, CHOICE.values()))


@pytest.mark.parametrize("kind", ["whole", "shaped", "short_rows"])
def test_fields_are_those_of_the_argument(kind):
    layout = argument_layouts()[kind]
    fields = layout["fields"]
    assert layout["bytes"] == struct.calcsize("<" + signature(kind))
    assert [field["offset"] for field in fields] == list(range(0, layout["bytes"], 8))
    assert len({field["name"] for field in fields}) == len(fields)
    assert [field["name"] for field in fields[:5]] == ["elements", "result", "second", "workspace", "device_length"]
    signed = [field["name"] for field in fields if field["type"] == "int64"]
    assert all(name.startswith(("low", "high", "result_stride")) or "stride" in name for name in signed)
    assert ("low" in signed) == (kind != "whole")
