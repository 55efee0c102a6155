"""Kernels that may begin before their predecessor ends: in the PTX a wait stands before the first use of memory."""

import re

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import loading

N = 300_000
# Loads, stores, atomics and asynchronous copies, of global memory by name or by a generic address. What is fetched into
# the level-2 cache alone nobody reads there before it is written: writes go through that cache.
MEMORY = re.compile(r"^(@!?%p\d+ )?(ld|ldu|st|atom|red|cp\.async|cp\.reduce)\b")
ELSEWHERE = re.compile(r"\.(param|shared(::\w+)?|local|const)\b|cp\.async\.(commit|wait|bulk\.prefetch)")

PLANS = {
    **{name: {"shape": N, "strategy": name} for name in ("tiles", "two_pass", "cooperative")},
    "block": {"shape": 5000, "strategy": "block"},
    "cluster": {"shape": N // 20, "strategy": "cluster"},
    "small rows": {"shape": (5000, 40), "axis": 1},
    "rows": {"shape": (400, 5000), "axis": 1},
    "batch": {"shape": (2, N), "axis": 1},
    "columns": {"shape": (500, 100), "axis": 0},
    "shared columns": {"shape": (N, 3), "axis": 0},
    "wide columns": {"shape": (3000, 3000), "axis": 0},
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


def check(texts, plan):
    kernels = plan._open_kernels()
    assert kernels
    for loaded, config, *_ in kernels:
        kernel = loaded.kernel
        lines = [line.strip() for line in texts[kernel.name].partition(".entry")[2].splitlines()]
        touches = [i for i, line in enumerate(lines) if MEMORY.match(line) and not ELSEWHERE.search(line)]
        waits = [i for i, line in enumerate(lines) if line.startswith("griddepcontrol.wait")]
        assert touches
        if config.programmatic_stream_serialization:
            assert waits, f"{kernel.name} does not wait"
            assert waits[0] < touches[0], f"{kernel.name}: {lines[touches[0]]}"


@pytest.mark.parametrize("op", ["sum", "argmax", "mean_var"])
@pytest.mark.parametrize("case", PLANS)
def test_a_plans_kernels_wait_first(context, texts, case, op):
    with lr.plan(op, dtype="float32", context=context, **PLANS[case]) as plan:
        check(texts, plan)
        programmatic = [config.programmatic_stream_serialization for _, config in plan.launches]
        assert all(programmatic) == (case != "cooperative")


@pytest.mark.parametrize("op", ["sum", "argmax"])
@pytest.mark.parametrize("segments", [3, 100_000])
def test_those_of_segments_do_too(context, texts, op, segments):
    with lr.segmented_plan(op, length=N, segments=segments, dtype="float32", context=context) as plan:
        check(texts, plan)
