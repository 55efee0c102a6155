"""Kernels that may begin before their predecessor ends: in the PTX a wait stands before the first use of memory.

What is read earlier goes nowhere: the registers it is read to are the instruction's own.
"""

import re

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.plans import loading

N = 300_000
# Loads, stores, atomics and asynchronous copies, of global memory by name or by a generic address. What is fetched into
# the level-2 cache alone nobody reads there before it is written: writes go through that cache.
MEMORY = re.compile(r"(?:^|[;{}]\s*)(?:@!?%?p\d*\s+)?((?:ld|ldu|st|atom|red|cp\.async|cp\.reduce)\b[.\w:]*)")
ELSEWHERE = re.compile(r"\.(param|shared(::\w+)?|local|const)\b|cp\.async\.(commit|wait|bulk\.prefetch)")
UNSEEN = re.compile(
    r"^\{ \.reg \.pred p; \.reg \.u32 x(?P<more>, y, z, w)?; setp\.ne\.u32 p, %r\d+, 0;"
    r"\s*@p ld\.volatile\.global(?(more)\.v4\.u32 \{x, y, z, w\}|\.u32 x), \[%rd\d+\]; \}$"
)

PLANS = {
    **{name: {"shape": N, "strategy": name} for name in ("tiles", "two_pass", "cooperative")},
    "block": {"shape": 5000, "strategy": "block"},
    "cluster": {"shape": N // 20, "strategy": "cluster"},
    "small rows": {"shape": (5000, 40), "axis": 1},
    "rows": {"shape": (400, 5000), "axis": 1},
    "rows in turns": {"shape": (400, 5000), "axis": 1, "strategy": "rows"},
    "batch": {"shape": (2, N), "axis": 1},
    "columns": {"shape": (500, 100), "axis": 0},
    "shared columns": {"shape": (N, 3), "axis": 0},
    "wide columns": {"shape": (3000, 3000), "axis": 0},
    "two arrays": {"shape": (400, 5000), "axis": 1},
}


@pytest.fixture
def texts(monkeypatch):
    """The PTX of each kernel that is loaded, by its name."""
    load, texts = loading._load, {}

    def noting(cubin, entry):
        texts[entry] = cubin.data.decode()
        return load(cubin, entry)

    monkeypatch.setattr(loading, "_load", noting)
    return texts


def uses_memory(line):
    return any(not ELSEWHERE.search(opcode) for opcode in MEMORY.findall(line)) and not UNSEEN.match(line)


def check(texts, plan, *, programmatic=True):
    """Check that a plan's kernels are launched before their predecessors end, or not, and that they wait."""
    kernels = plan._open_kernels()
    assert kernels
    for loaded, config, *_ in kernels:
        kernel = loaded.kernel
        lines = [line.strip() for line in texts[kernel.name].partition(".entry")[2].splitlines()]
        uses = [i for i, line in enumerate(lines) if uses_memory(line)]
        waits = [i for i, line in enumerate(lines) if line.startswith("griddepcontrol.wait")]
        assert uses
        assert bool(config.programmatic_stream_serialization) == programmatic
        if programmatic:
            assert waits, f"{kernel.name} does not wait"
            assert waits[0] < uses[0], f"{kernel.name}: {lines[uses[0]]}"


@pytest.mark.parametrize("op", ["sum", "argmax", "mean_var"])
@pytest.mark.parametrize("case", PLANS)
def test_a_plans_kernels_wait_first(context, texts, case, op):
    op = "dot" if case == "two arrays" else op
    with lr.plan(op, dtype="float32", context=context, **PLANS[case]) as plan:
        check(texts, plan, programmatic=case != "cooperative")


def test_what_is_read_before_the_wait_is_told_from_what_is_used():
    declared = "{ .reg .pred p; .reg .u32 x, y, z, w; setp.ne.u32 p, %r5, 0;"
    block = declared + "@p ld.volatile.global.v4.u32 {x, y, z, w}, [%rd3]; }"
    assert not uses_memory(block)
    assert uses_memory(block.replace("{x, y", "{%r1, y"))
    word = "{ .reg .pred p; .reg .u32 x; setp.ne.u32 p, %r5, 0; @p ld.volatile.global.u32 x, [%rd3]; }"
    assert not uses_memory(word)
    assert uses_memory(word.replace("u32 x, [", "u32 %r1, ["))
    assert uses_memory("{ .reg .pred p; setp.ne.u32 p, %r5, 0;@p ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3]; }")
    assert uses_memory("@%p3 st.global.u32 [%rd1], %r2;")
    assert not uses_memory("cp.async.bulk.prefetch.L2.global [%rd1], %r2;")
    assert not uses_memory("ld.param.u64 %rd1, [problem];")


@pytest.mark.parametrize("op", ["sum", "argmax"])
@pytest.mark.parametrize("segments", [3, 100_000])
def test_those_of_segments_do_too(context, texts, op, segments):
    with lr.segmented_plan(op, length=N, segments=segments, dtype="float32", context=context) as plan:
        check(texts, plan)


@pytest.mark.parametrize("op", ["sum", "argmax"])
def test_that_of_partials_does_too(context, texts, op):
    with lr.combine_plan(op, length=N, chunk=4096, dtype="float32", context=context) as plan:
        check(texts, plan)


@pytest.mark.parametrize("name", ["RTX 4090"])
def test_older_devices_have_none(context, texts):
    """Compute capability 8.9, the last without."""
    for make in (
        lambda: lr.plan("sum", shape=5000, dtype="float32", context=context),
        lambda: lr.plan("sum", shape=(50, 30), axis=1, dtype="float32", context=context),
        lambda: lr.segmented_plan("sum", length=5000, segments=3, dtype="float32", context=context),
        lambda: lr.combine_plan("sum", length=50_000, chunk=4096, dtype="float32", context=context),
    ):
        with make() as plan:
            check(texts, plan, programmatic=False)
