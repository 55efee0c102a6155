"""The order of kernels in a pack: a block is unpacked from its beginning, so what first calls need comes first."""

from lowlevel_reduce.compiler.pack import PackedEntry
from lowlevel_reduce.kernel_wheel import building


def test_twins_are_behind_the_others_and_families_take_turns():
    roles = {"sum": ("block", "whole_anywhere", "tiles", "rows_anywhere", "rows"), "mean": ("block", "whole_anywhere")}
    families = [
        [(f"{op}_{role}", PackedEntry(f"{op} {role}", b"")) for role in of_family] for op, of_family in roles.items()
    ]
    assert [entry.name for entry in building._in_turns(families)] == [
        "sum block",
        "mean block",
        "sum tiles",
        "sum rows",
        "sum whole_anywhere",
        "mean whole_anywhere",
        "sum rows_anywhere",
    ]
