"""What Nsight Compute writes, in every form that it has, and how its refusals are told. No ncu and no GPU."""

import stat

import pytest

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.profile import counters, ncu

PROLOGUE = [
    "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
    '==PROF== Profiling "reduce1" - 0: 0%....50%....100% - 3 passes',
    "==PROF== Disconnected from process 4711",
]
IDENTITY = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
            "Grid Size", "Device", "CC"]  # fmt: skip
REDUCE1 = "void reduce1<float, (int)256>(const T1 *, T1 *, unsigned int)"
LOADS, REDS, ATOMS = ncu.METRICS["global_loads"]


def quoted(cells):
    return ",".join(f'"{cell}"' for cell in cells)


def identity(number, kernel):
    return [number, "4711", "python3.12", "127.0.0.1", kernel, "1", "7", "(256, 1, 1)", "(1024, 1, 1)", "0", "9.0"]


def values(**changes):
    return {**dict.fromkeys(ncu.WANTED, "0"), LOADS: "1,024", REDS: "24", ncu.INSTRUCTIONS: "1,234,567"} | changes


def unit(metric):
    return "inst" if metric == ncu.INSTRUCTIONS else "request" if "requests" in metric else "sector"


def wide(kernels=(REDUCE1, REDUCE1), found=None, units=unit, metrics=ncu.WANTED):
    """Return the table of ``--page raw``: a row a launch, a row of units before them."""
    found = found or values()
    rows = [[*IDENTITY, *metrics], [*("" for _ in IDENTITY), *map(units, metrics)]]
    rows += [[*identity(str(i), kernel), *(found[name] for name in metrics)] for i, kernel in enumerate(kernels)]
    return "\n".join([*PROLOGUE, *map(quoted, rows)]) + "\n"


def long(kernels=(REDUCE1, REDUCE1), found=None, units=unit, metrics=ncu.WANTED):
    """Return the table without ``--page raw``: a row for each launch and metric, with what the program printed."""
    found = found or values()
    rows = [[*IDENTITY, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
    for i, kernel in enumerate(kernels):
        rows += [
            [*identity(str(i), kernel), "Command line profiler metrics", name, units(name), found[name]]
            for name in metrics
        ]
    return "\n".join([PROLOGUE[0], "the program's own line", *map(quoted, rows), PROLOGUE[2]]) + "\n"


@pytest.mark.parametrize("form", [wide, long])
def test_figures_are_added_up_over_launches_and_operations(form):
    found = ncu.profiled(form(), {"conflicts": ["reduce1"]})
    assert found == {
        "conflicts": {
            "global_loads": 2096, "global_load_sectors": 0, "global_stores": 48, "global_store_sectors": 0,
            "shared_wavefronts": 0, "bank_conflicts": 0, "atomics": 48, "instructions": 2469134,
        }
    }  # fmt: skip


@pytest.mark.parametrize("form", [wide, long])
def test_each_kernel_has_its_own_launches(form):
    text = form(("reduce1", "sum_float32_tiles(Arguments)", "reduce1"))
    found = ncu.profiled(
        text, {"c": ["reduce1"], "flat": ["sum_float32_tiles"], "both": ["reduce1", "sum_float32_tiles"]}
    )
    assert [found[title]["atomics"] for title in ("c", "flat", "both")] == [48, 24, 72]


def test_cells_need_no_quotes_and_a_second_header_is_none_of_them():
    lines = wide(("reduce1",), values(**{LOADS: "1024", ncu.INSTRUCTIONS: "7.000000"})).splitlines()
    lines = [line.replace('"', "") if "(256" not in line else line for line in lines]
    lines += lines[len(PROLOGUE) :]
    assert ncu.profiled("\n".join(lines), {"c": ["reduce1"]})["c"]["instructions"] == 14


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("reduce1", "reduce1"),
        ("reduce1(const float *, float *)", "reduce1"),
        ("void reduce1<float, (int)256>(T1 *)", "reduce1"),
        ("void study::reduce1<study::Sum<float>>(T1 *)", "reduce1"),
        ("", ""),
    ],
)
def test_kernels_are_told_by_their_bare_names(shown, name):
    assert ncu.function_name(shown) == name


@pytest.mark.parametrize("form", [wide, long])
def test_what_a_table_lacks_is_named(form):
    with pytest.raises(FileError, match="has no kernel reduce2"):
        ncu.profiled(form(), {"x": ["reduce2"]})
    with pytest.raises(FileError, match=f"has no {ATOMS} of void reduce1"):
        ncu.profiled(form(metrics=[name for name in ncu.WANTED if name != ATOMS]), {"x": ["reduce1"]})
    for text in ("n/a", "", "1.5", "9,00", "(!) nan"):
        with pytest.raises(FileError, match=f"no figure for {LOADS}"):
            ncu.profiled(form(found=values(**{LOADS: text})), {"x": ["reduce1"]})
    with pytest.raises(FileError, match="--print-units base"):
        ncu.profiled(form(units=lambda name: "Ksector"), {"x": ["reduce1"]})


def test_launches_keep_their_order():
    text = wide(("b", "void a<float>(T1 *)", "b"), values(**{ncu.INSTRUCTIONS: "2,345.5"}))
    found = ncu.launches(text, [ncu.INSTRUCTIONS, LOADS])
    assert [each.kernel for each in found] == ["b", "a", "b"]
    assert all(each.figures == {ncu.INSTRUCTIONS: 2345.5, LOADS: 1024.0} for each in found)


def test_what_launches_lack_is_named():
    with pytest.raises(FileError, match="no table .* with other, nothing"):
        ncu.launches(wide(), [LOADS, "other", "nothing"])
    with pytest.raises(FileError, match="does not let the user read"):
        ncu.launches(REFUSALS[0][0], [LOADS])
    with pytest.raises(FileError, match=f"no figure for {LOADS} of void reduce1.*: 'n/a'"):
        ncu.launches(wide(found=values(**{LOADS: "n/a"})), [LOADS])


REFUSALS = [
    (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
        "the target device 0.",
        "does not let the user read the GPU's performance counters",
    ),
    ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "through this machine's driver: Failed to init"),
    ("==ERROR== Failed to find metric regex:^l1tex__nothing$", "does not know a metric for this GPU: .*l1tex__nothing"),
    ("==WARNING== No kernels were profiled.", "ncu saw no kernel"),
    ("==ERROR== The application returned an error code (1).", "ncu failed: The application returned"),
]


@pytest.mark.parametrize(("line", "said"), REFUSALS)
def test_a_refusal_is_told_in_one_sentence(line, said):
    with pytest.raises(FileError, match=said) as raised:
        ncu.profiled(f"{PROLOGUE[0]}\n{line}\n{PROLOGUE[2]}\n", {"x": ["reduce1"]})
    assert "\n" not in str(raised.value)


def test_what_is_no_table_is_refused():
    with pytest.raises(FileError, match="no table"):
        ncu.profiled("rung,us\nreduce1,3\n", {"x": ["reduce1"]})


COUNTED = {"conflicts": {**dict.fromkeys(counters.SHOWN, 0), "global_loads": 2096, "kernels": ["reduce1"]}}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Stand in for ncu with a script, and for the simulated run with its counters."""

    def install(body):
        file = tmp_path / "ncu"
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(counters, "simulated", lambda: COUNTED)
    monkeypatch.setattr(counters, "_conditions", lambda commit: {"device": "D", "commit": commit})
    return install


def test_the_profiler_is_run_and_compared_with(program, tmp_path, capsys):
    (tmp_path / "table.csv").write_text(wide())
    program(f'while [ "$1" != --log-file ]; do shift; done; cp {tmp_path}/table.csv "$2"; test "$LC_ALL" = C')
    file = tmp_path / "counters.jsonl"
    assert counters.main(["--profile", "--json", str(file), "--commit", "abc"]) == 1
    out = capsys.readouterr().out
    assert "global_loads                2,096        2,096  agrees" in out
    assert "atomics                         0           48  -100.0 %" in out
    assert "instructions                    0    2,469,134  not compared" in out
    document = records.read(file, "counters")
    assert document.conditions == {"device": "D", "commit": "abc"}
    assert {record["title"]: record["ncu"] for record in document.records}["conflicts"]["atomics"] == 48


def test_a_profiler_that_may_not_count_ends_the_run_with_one_line(program, tmp_path, capsys):
    program(f"echo '{REFUSALS[0][0]}'; exit 1")
    assert counters.main(["--profile", "--json", str(tmp_path / "x.jsonl")]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "benchmarks.profile.counters: this machine does not let the user read the GPU's performance counters "
        "(ERR_NVGPUCTRPERM)"
    ]
    assert not (tmp_path / "x.jsonl").exists()
    program("echo what >&2; exit 9")
    assert counters.main(["--profile"]) == 2
    assert "ncu ended with 9: what" in capsys.readouterr().err


def test_a_missing_profiler_or_file_is_said(program, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda *_, **__: None)
    assert counters.main(["--profile"]) == 2
    assert "there is no ncu on this machine" in capsys.readouterr().err
    assert counters.main(["--ncu", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_command_asks_for_every_metric_once(capsys):
    assert counters.main(["--command"]) == 0
    words = capsys.readouterr().out.split()
    metrics = words[words.index("--metrics") + 1].split(",")
    assert len(metrics) == len(set(metrics)) == 13
    assert {part for parts in ncu.METRICS.values() for part in parts} | {ncu.INSTRUCTIONS} == set(metrics)
    assert "--device cuda" in " ".join(words)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [(100, 100, "agrees"), (102, 100, "agrees"), (103, 100, "+3.0 %"), (0, 0, "agrees"), (5, 0, "+5, profiler 0")],
)
def test_counts_agree_within_two_percent(ours, theirs, said):
    assert counters.compared(ours, theirs) == said
