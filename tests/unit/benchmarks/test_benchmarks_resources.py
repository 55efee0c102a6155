"""The list of what the compiler makes of every kernel: which kernels there are, and how two lists differ."""

import re

import pytest

from benchmarks import resources
from benchmarks.suites.arrays import OPERATOR_TYPES, takes
from lowlevel_reduce.operators import OPERATORS

ROW = {"registers": 64, "blocks": 2, "spilled": [], "instructions": 9, "code": "a"}


def test_every_operator_and_type_has_every_kind_of_kernel():
    pairs = [(op, dtype) for op in OPERATORS for dtype in OPERATOR_TYPES if takes(op, dtype)]
    kinds = {pair: [kind for kind, _ in resources.sources(*pair)] for pair in pairs}
    assert all(len(set(found)) == len(found) for found in kinds.values())
    kernels = {*resources.WHOLE, *resources.MATRICES} - {"two_pass"} | {"two_pass, first_pass", "two_pass, second_pass"}
    twins = {f"{kind}, anywhere" for kind in kernels if not re.match("two_pass|cooperative|columns|wide", kind)}
    of_columns = {"columns, anywhere", "wide columns, anywhere"}  # where sixteen bytes of neighbours are loaded
    for (op, _), found in kinds.items():
        segments = set() if op == "dot" else {"short segments", "long segments"}
        assert set(found) - of_columns == kernels | twins | segments


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_the_kinds_are_kernels_that_differ(dtype):
    """But those of columns, which are one another's for wide elements, and of tiles for wide accumulators.

    At any address one kernel does what several do, and one what any columns need.
    """
    texts = dict(resources.sources("sum", dtype))
    for aligned, most in ((True, 4), (False, 5)):
        kinds = [kind for kind in texts if kind.endswith(", anywhere") != aligned]
        assert len({texts[kind].text for kind in kinds}) >= len(kinds) - most
    for kind, strategy in {
        "tiles": "tiles",
        "batch": "batch",
        "rows at once": "at_once",
        "rows in turns": "rows",
        "short rows": "short_rows",
        "columns": "columns",
    }.items():
        assert re.search(rf"_{strategy}\b", texts[kind].entry)


def test_what_two_lists_differ_in():
    then = {"same": ROW, "changed": ROW, "order": ROW, "gone": ROW}
    now = {
        "same": ROW,
        "changed": {**ROW, "registers": 80, "spilled": [4], "code": "b"},
        "order": {**ROW, "code": "c"},
        "fresh": ROW,
    }
    assert resources.compared(now, then) == [
        "changed: registers 64 -> 80, spilled [] -> [4]",
        "order: other instructions, as many",
        "fresh: new",
        "the same code: 1 of 3 kernels of both lists; 1 are not listed now",
    ]


def test_a_table_has_a_line_each():
    head, line = resources.table({"sum float32, tiles": {**ROW, "spilled": [16, 8]}})
    assert line.split() == ["sum", "float32,", "tiles", "64", "2", "9", "16,", "8"]
    assert head.startswith("kernel")


def test_a_list_of_another_compiler_is_no_base(tmp_path):
    file = tmp_path / "list.json"
    file.write_text('{"nvrtc": "12.6", "architecture": "sm_90", "kernels": {}}')
    with pytest.raises(SystemExit, match="is of NVRTC 12.6 for sm_90, this is 13.0 for sm_90"):
        resources._read(file, "13.0", "sm_90")
    assert resources._read(file, "12.6", "sm_90") == {}
