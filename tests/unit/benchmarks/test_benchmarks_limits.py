"""Profiles of cells: who launched what, told by the order of launches. No ncu and no GPU."""

import json
import stat

import pytest

from benchmarks.measure import records
from benchmarks.measure.figures import OURS, FileError
from benchmarks.profile import limits, ncu
from benchmarks.profile.limits import METRICS, SIGN, contenders, summary
from benchmarks.profile.ncu import Launch
from benchmarks.profile.variants import case_of
from lowlevel_reduce import simulator


def launch(kernel, number=1.0):
    return Launch(kernel, dict.fromkeys(METRICS.values(), number))


DONE = [
    {"cell": "sum float32 2^8", "contender": "A"},
    {"cell": "sum float32 2^8", "contender": "B", "error": "MemoryError: none left"},
    {"cell": "sum float32 2^8", "contender": "C"},
]


def test_each_contender_has_the_kernels_after_its_sign():
    found = contenders([launch(SIGN), launch("a", 2), launch("b", 3), launch(SIGN), launch("a", 4)], DONE)
    assert [each["contender"] for each in found] == ["A", "B", "C"]
    assert [(kernel["kernel"], kernel["time_ns"]) for kernel in found[0]["kernels"]] == [("a", 2), ("b", 3)]
    assert "kernels" not in found[1]
    assert [kernel["blocks"] for kernel in found[2]["kernels"]] == [4]


@pytest.mark.parametrize(
    ("launches", "complaint"),
    [
        ([launch("a"), launch(SIGN), launch(SIGN)], "saw a before the first contender"),
        ([launch(SIGN), launch("a")], "saw 1 contenders, not 2"),
        ([], "saw 0 contenders, not 2"),
    ],
)
def test_launches_that_do_not_fit_are_refused(launches, complaint):
    with pytest.raises(FileError, match=complaint):
        contenders(launches, DONE)


def test_a_summary_names_the_three_worst_stalls():
    figures = dict.fromkeys(METRICS, 0.0) | {"kernel": "k", "time_ns": 1500.0, "memory_percent": 93.26}
    figures |= {"stalled_barrier": 3.0, "stalled_wait": 2.0, "stalled_membar": 4.0, "stalled_sleeping": 1.0}
    lines = summary({"cell": "c", "contender": "A", "kernels": [figures]}).splitlines()
    assert lines[0] == "c A"
    assert "1.50 us, memory 93.3 %" in lines[1]
    assert lines[1].endswith("stalls membar 4.0, barrier 3.0, wait 2.0")
    assert summary(DONE[1]) == "sum float32 2^8 B: MemoryError: none left"
    assert summary({"contender": "D", "missing": "no module"}) == "D is missing: no module"


def test_contenders_are_launched_one_after_the_other(monkeypatch):
    """On the simulator; one that is missing is told, and the profiler looks at one reduction of each case."""
    calls = []
    call = limits.binding.call
    monkeypatch.setattr(limits.binding, "call", lambda name, *rest: calls.append(name) or call(name, *rest))
    with simulator.use("H200"):
        done = limits.launch_all([case_of("sum float32 1000"), case_of("max int32 8x300 axis=1")], ["CuPy"])
    assert [each["contender"] for each in done] == [OURS, OURS, "CuPy"]
    assert [each.get("cell") for each in done[:2]] == ["sum float32 1,000", "max int32 8 x 300, axis 1"]
    assert done[2]["missing"]
    assert "error" not in done[2]
    profiled = [name for name in calls if name.startswith("cuProfiler")]
    assert profiled == ["cuProfilerStart", "cuProfilerStop"] * 2


def test_a_contender_that_fails_is_closed_and_told(monkeypatch):
    closed = []

    def broken(case, inputs, stream):
        ready = limits_ours(case, inputs, stream)
        close = ready.close
        ready.results = lambda: 1 / 0
        ready.close = lambda: closed.append(close())
        return ready

    limits_ours = limits.ours
    monkeypatch.setattr(limits, "ours", broken)
    with simulator.use("H200"):
        [entry] = limits.launch_all([case_of("sum float32 100")], [])
    assert entry["error"] == "ZeroDivisionError: division by zero"
    assert closed == [None]


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Stand in for ncu with a script that writes the table and what was launched."""
    header = ["ID", "Kernel Name", *METRICS.values()]
    rows = [header, ["", "", *("" for _ in METRICS)]]
    rows += [[str(i), kernel, *("7" for _ in METRICS)] for i, kernel in enumerate((SIGN, "sum_tiles"))]
    (tmp_path / "table.csv").write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n")

    def install(done):
        (tmp_path / "done.json").write_text(json.dumps(done))
        file = tmp_path / "ncu"
        file.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/words\n'
            'while [ "$1" != --log-file ]; do shift; done\n'
            f'cp {tmp_path}/table.csv "$2"\n'
            'while [ "$1" != --launch ]; do shift; done\n'
            f'cp {tmp_path}/done.json "$2"\n'
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(limits.ncu, "version", lambda: "Version 1")
    return install


def test_the_profiler_is_run_and_its_figures_are_written(program, tmp_path, capsys):
    program([{"cell": "sum float32 2^8", "contender": OURS}])
    file = tmp_path / "limits.jsonl"
    with simulator.use("H200"):
        assert limits.main(["--case", "sum float32 2^8", "--json", str(file), "--commit", "abc"]) == 0
    assert "sum_tiles" in capsys.readouterr().out
    words = (tmp_path / "words").read_text()
    assert "--profile-from-start off" in words
    assert "--clock-control none" in words
    document = records.read(file, "limits")
    assert document.conditions["ncu"] == "Version 1"
    assert document.records[0]["kernels"] == [{"kernel": "sum_tiles", **dict.fromkeys(METRICS, 7.0)}]
    right = {"cell": "sum float32 2^8", "contender": OURS}
    others = [({"contender": "CuPy", "missing": "no module"}, 0), ({**right, "error": "it broke"}, 1)]
    for other, status in others:
        program([right, other])
        with simulator.use("H200"):
            assert limits.main(["--case", "sum float32 2^8", "--json", str(file)]) == status
        assert records.read(file, "limits").records[1] == other
    program([{**right, "error": "it broke"}])
    assert limits.main(["--case", "sum float32 2^8", "--json", str(file)]) == 2
    assert "ncu saw 1 contenders, not 0" in capsys.readouterr().err


def test_bad_arguments_end_before_anything_is_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ncu, "profile", lambda *_, **__: pytest.fail("was run"))
    for arguments in (
        ["--case", "sum float32"],
        ["--case", "sum float32 8"],
        ["--case", "sum float32 8", "--json", str(tmp_path / "no" / "file.jsonl")],
        ["--case", "sum float32 8", "--peer", "nobody", "--json", str(tmp_path / "file.jsonl")],
    ):
        with pytest.raises(SystemExit) as raised:
            limits.main(arguments)
        assert raised.value.code == 2
        assert "usage" in capsys.readouterr().err
