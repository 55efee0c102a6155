"""The command line: options, tables, JSON, errors and exit codes, on a ladder of made-up records."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import cli_ladder as fake
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lowlevel_reduce import NoDriverError, cli, compiler, driver, simulator
from lowlevel_reduce.cli import app, attributes, output, rungs, session, tables
from lowlevel_reduce.cli import reduce as reduce_command
from lowlevel_reduce.driver import Context, Stream

NOT_WITH_SOURCE = "is of the ladder's rungs: not with --source, which has --beside\n"


def run(*arguments):
    return CliRunner().invoke(app.app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Of several processes each has COLUMNS, which would stack the tables; a test that is about that sets it."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def ladder(monkeypatch):
    """Replace the ladder; the test may change how a record is made, and sees what the runner was asked."""
    asked = {"make": fake.counted}

    def iterate(chosen, **options):
        asked.update(options, rungs=[rung.id for rung in chosen])
        yield from map(asked["make"], chosen)

    monkeypatch.setattr(rungs, "RUNGS", fake.RUNGS)
    monkeypatch.setattr(rungs, "iterate", iterate)
    return asked


@pytest.fixture
def on_a_gpu(monkeypatch, ladder):
    """Let the command believe that it has a GPU, which is a simulated one."""

    @contextlib.contextmanager
    def open_session(target):
        with simulator.use("H200"), Context.primary() as context, context.pushed():
            yield session.Session(context, simulated=False, note=None)

    monkeypatch.setattr(app, "open_session", open_session)
    ladder["make"] = fake.timed


def row(text, name):
    (found,) = [line.split() for line in text.splitlines() if line.split()[:1] == [name]]
    return found


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_the_output_has_no_sign_for_is_a_question_mark(monkeypatch, encoding):
    monkeypatch.setenv(compiler.cache.VARIABLE, os.fsdecode(b"/no/where/\xff"))
    written, errors = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setattr(sys, "stderr", errors)
    assert cli.main(["info"]) == 0
    written.flush()
    text = written.buffer.getvalue().decode(encoding)
    assert "/no/where/?" in text
    assert re.search(r"installed kernels +[?–]", text)


# -- extras -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(module):
    code = f"import sys; sys.modules[{module!r}] = None; from lowlevel_reduce.cli import main; sys.exit(main(['info']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f'the command line needs {module}: pip install "lowlevel-reduce[cli]"\n'


def test_another_missing_module_is_not_blamed_on_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lowlevel_reduce.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["info"])


def test_the_library_imports_neither_typer_nor_rich():
    code = "import sys, lowlevel_reduce; sys.exit('typer' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


@pytest.mark.parametrize(
    ("option", "name", "module"), [("--plot", "a.png", "matplotlib"), ("--report", "a.html", "jinja2")]
)
def test_files_need_their_extra_before_anything_runs(ladder, monkeypatch, tmp_path, option, name, module):
    for known in [known for known in sys.modules if known.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    done = run("ladder", "--device", "simulator", option, tmp_path / name)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert 'pip install "lowlevel-reduce[plot]"' in done.stderr
    assert "rungs" not in ladder, "it ran before it looked"
    assert run("ladder", "--device", "simulator").exit_code == 0, "nothing else may break"


def test_main_gives_the_exit_status(capsys):
    assert cli.main(["info", "--json"]) == 0
    assert cli.main(["ladder", "--system", "Q"]) == 2
    assert "no system 'Q'" in capsys.readouterr().err


# -- info -------------------------------------------------------------------------------------------------------------


def test_info_of_a_device():
    with simulator.use("A100"):
        facts = json.loads(run("info", "--json").stdout)
        shown = run("info").stdout
    (device,) = facts["devices"]
    assert (device["name"], device["compute_capability"]) == ("NVIDIA A100-SXM4-80GB", "8.0")
    assert (device["multiprocessors"], device["clusters"], device["cooperative_launch"]) == (108, False, True)
    assert device["peak_gb_per_s"] == pytest.approx(2 * 1593e6 * 5120 / 8 / 1e9)
    assert facts["driver"]["unavailable"] is None
    assert row(shown, "thread-block")[-1] == "no"
    assert row(shown, "cooperative")[-1] == "yes"
    assert facts["bindings"] in shown


def test_info_without_driver_and_compiler_says_why(monkeypatch):
    def missing():
        raise compiler.nvrtc.NoCompilerError("no NVRTC here")

    monkeypatch.setattr(driver, "why_unavailable", lambda: "no NVIDIA driver here")
    monkeypatch.setattr(compiler, "version", missing)
    done = run("info", "--json")
    facts = json.loads(done.stdout)
    assert done.exit_code == 0
    assert facts["devices"] == []
    assert facts["driver"]["unavailable"] == "no NVIDIA driver here"
    assert facts["nvrtc"] == {"version": None, "architectures": [], "unavailable": "no NVRTC here"}
    shown = run("info").stdout
    assert "no NVIDIA driver here" in shown
    assert "no NVRTC here" in shown


def test_info_counts_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path))
    compiler.open_cache().store(f"cubin-{'0' * 64}.llr", {}, b"x" * 1000)
    found = json.loads(run("info", "--json").stdout)["cache"]
    assert (found["directory"], found["entries"]) == (str(tmp_path), 1)
    assert 1000 < found["bytes"] < 1200
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    assert json.loads(run("info", "--json").stdout)["cache"]["directory"] is None


def test_info_says_why_a_directory_fails_every_call(monkeypatch, tmp_path):
    for which, variable in (("cache", "LOWLEVEL_REDUCE_CACHE_DIR"), ("prebuilt", "LOWLEVEL_REDUCE_PREBUILT_DIR")):
        monkeypatch.setenv(variable, str(tmp_path))
        tmp_path.chmod(0o777)
        assert "others may write" in json.loads(run("info", "--json").stdout)[which]["unavailable"]
        assert "others may write" in run("info").stdout
        tmp_path.chmod(0o700)
        assert json.loads(run("info", "--json").stdout)[which]["unavailable"] is None


def test_info_counts_prebuilt_kernels_and_says_what_is_wrong_with_them(monkeypatch, tmp_path):
    monkeypatch.delenv("LOWLEVEL_REDUCE_PREBUILT_DIR", raising=False)
    nothing = {"directory": None, "entries": 0, "bytes": 0, "limit_bytes": None, "unavailable": None}
    assert json.loads(run("info", "--json").stdout)["prebuilt"] == nothing
    monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", str(tmp_path))
    compiler.prebuilt_at(str(tmp_path)).store(f"cubin-{'0' * 64}.llr", {}, b"x" * 1000)
    found = json.loads(run("info", "--json").stdout)["prebuilt"]
    assert (found["directory"], found["entries"], found["unavailable"]) == (str(tmp_path), 1, None)
    assert 1000 < found["bytes"] < 1200
    assert str(tmp_path) in run("info").stdout
    monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", str(tmp_path / "nothing"))
    assert "which is no directory" in json.loads(run("info", "--json").stdout)["prebuilt"]["unavailable"]
    assert "which is no directory" in run("info").stdout


# -- where a command runs ---------------------------------------------------------------------------------------------


def test_a_missing_driver_falls_back_and_says_so_first(ladder, monkeypatch):
    monkeypatch.setattr(driver, "why_unavailable", lambda: "there is none")
    done = run("ladder")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "simulated NVIDIA H200: there is none"
    done = run("ladder", "--json")
    assert done.stderr.splitlines()[0] == "simulated NVIDIA H200: there is none"
    assert isinstance(json.loads(done.stdout), list)


def test_the_environment_chooses_the_simulated_device(ladder, monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_SIMULATED_DEVICE", "T4")
    assert run("ladder", "--device", "simulator").stdout.startswith("simulated Tesla T4: as asked\n")


def test_a_simulated_driver_that_the_environment_selected_is_no_gpu(ladder):
    with simulator.use("B200"):
        done = run("ladder")
    assert done.stdout.startswith("simulated NVIDIA B200: LOWLEVEL_REDUCE_DRIVER says so\n")
    assert ladder["n"] == 2**16 + 3


def test_a_gpu_that_was_asked_for_is_never_replaced(ladder, monkeypatch):
    def no_driver():
        raise NoDriverError("there is none:\n install it")

    monkeypatch.setattr(Context, "primary", no_driver)
    done = run("ladder", "--device", "cuda")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "NoDriverError: there is none: install it\n"


def test_a_gpu_that_was_asked_for_is_not_what_the_environment_simulates(ladder, monkeypatch):
    def primary():
        raise NoDriverError(f"asked of {driver.binding.selected().name}")

    with simulator.use("H200"):
        monkeypatch.setattr(Context, "primary", primary)
        assert run("ladder", "--device", "cuda").stderr == "NoDriverError: asked of cuda\n"


# -- ladder -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "names", "expected"),
    [
        (None, [], ["slow", "fast"]),
        ("b", [], ["atomic", "shared", "shuffle"]),
        ("all", [], list(fake.RUNGS)),
        (None, ["tree,slow"], ["slow", "tree"]),
        (None, ["tree", "atomic , slow"], ["slow", "atomic", "tree"]),
        ("E", ["tree"], ["tree"]),
    ],
)
def test_rungs_are_chosen_in_the_ladders_order(system, names, expected):
    assert [rung.id for rung in rungs.select(system, names, fake.RUNGS)] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--system", "Q"], "ValueError: no system 'Q'; there are A, B, E, and all\n"),
        (
            ["--rungs", "fast,vx", "--rungs", "vy"],
            "ValueError: no rung 'vx', 'vy'; there are slow, fast, atomic, shared, shuffle, race, tree\n",
        ),
        (["--system", "e", "--rungs", "fast"], "ValueError: no rung 'fast' in system E; there are race, tree\n"),
        (["--plot", "x.gif"], "ValueError: x.gif ends in none of .png, .svg\n"),
        (["--report", "x.pdf"], "ValueError: x.pdf ends in none of .html, .htm\n"),
        (["--grid", "0", "--then", "k"], "ValueError: --then, --grid goes with --source\n"),
        (["--per-thread", "4"], "ValueError: --per-thread goes with --source\n"),
        (
            ["--source", "k.cu", "--dtype", "float16", "--rungs", "slow"],
            "ValueError: --rungs, --dtype " + NOT_WITH_SOURCE,
        ),
        (["--plot", "no/where/x.png"], "FileNotFoundError: there is no directory no/where\n"),
    ],
)
def test_wrong_usage_is_one_line_and_runs_nothing(ladder, arguments, message):
    done = run("ladder", "--device", "simulator", *arguments)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message)
    assert "rungs" not in ladder


def test_a_directory_is_no_file_to_write_to(ladder, tmp_path):
    (tmp_path / "x.svg").mkdir()
    done = run("ladder", "--device", "simulator", "--plot", tmp_path / "x.svg")
    message = f"IsADirectoryError: {tmp_path / 'x.svg'} is a directory\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message)
    assert "rungs" not in ladder


@pytest.mark.parametrize("arguments", [["--n", "-1"], ["--repeat", "0"], ["--dtype", "int8"], ["--device", "tpu"]])
def test_options_out_of_range(ladder, arguments):
    done = run("ladder", *arguments)
    assert done.exit_code == 2
    assert arguments[0] in done.stderr
    assert "rungs" not in ladder


def test_what_the_runner_is_asked(ladder):
    run("ladder", "--device", "simulator", "--n", "77", "--block", "128", "--repeat", "9", "--dtype", "float16")
    del ladder["make"], ladder["context"]
    assert ladder == {"n": 77, "block": 128, "repeat": 9, "dtype": "float16", "rungs": ["slow", "fast"]}


def test_the_number_of_elements_suits_the_device_and_is_said(ladder, request):
    done = run("ladder", "--device", "simulator")
    assert ladder["n"] == 2**16 + 3
    assert "N = 65,539" in done.stdout.splitlines()[1]
    request.getfixturevalue("on_a_gpu")
    assert "N = 100,000,000 float32" in run("ladder").stdout
    assert ladder["n"] == 100_000_000


def test_json_is_a_list_of_objects_with_the_keys_in_order(ladder):
    done = run("ladder", "--device", "simulator", "--json")
    objects = json.loads(done.stdout)
    assert [entry["rung"] for entry in objects] == ["slow", "fast"]
    assert all(list(entry) == fake.KEYS for entry in objects)
    assert objects[0]["microseconds"] is None
    assert objects[0]["counters"]["instructions_by_class"] == {"float": 12}


def test_json_holds_what_json_has_no_number_for(ladder):
    ladder["make"] = lambda rung: fake.counted(rung, value=np.float32("inf"), relative_error=float("nan"))
    (entry, _) = json.loads(run("ladder", "--device", "simulator", "--json").stdout, parse_constant=pytest.fail)
    assert (entry["value"], entry["relative_error"]) == ("inf", "nan")


def test_a_simulated_run_shows_counters_and_no_time(ladder):
    cells = row(run("ladder", "--device", "simulator").stdout, "slow")
    assert cells == ["slow", "2,049", "4.00", "77", "1,234,567", "65", "1.5", "5.0e-04", "right"]


def test_a_run_without_loads_has_no_ratio(ladder):
    ladder["make"] = lambda rung: fake.counted(rung, counters={**fake.COUNTERS, "global_loads": 0})
    assert row(run("ladder", "--device", "simulator").stdout, "fast")[1:3] == ["0", "–"]


@pytest.mark.usefixtures("on_a_gpu")
def test_a_run_on_a_gpu_shows_times():
    shown = run("ladder").stdout
    assert row(shown, "slow") == ["slow", "8,000.0", "50", "1.0", "1.5", "1.00", "5.0e-04", "right"]
    assert row(shown, "fast") == ["fast", "100.0", "4,000", "83.1", "97", "80.00", "5.0e-04", "right"]


@pytest.mark.usefixtures("on_a_gpu")
def test_speed_ups_are_over_the_first_rung_that_is_meant_to_be_right():
    shown = run("ladder", "--system", "E").stdout
    assert row(shown, "tree")[5] == "1.00"
    assert row(shown, "race")[5:] == ["4.00", "5.0e-04", "wrong,", "on", "purpose"]
    assert tables.speed_up(rungs.Result(fake.RUNGS["slow"], fake.counted(fake.RUNGS["slow"])), []) is None


@pytest.mark.parametrize(("rung", "text"), [("slow", "WRONG"), ("race", "RIGHT, but meant to be wrong")])
def test_a_result_that_was_not_expected_is_exit_code_1(ladder, rung, text):
    right = fake.counted(fake.RUNGS[rung])
    assert run("ladder", "--device", "simulator", "--rungs", rung).exit_code == 0
    ladder["make"] = lambda _: replace(right, correct=not right.correct)
    done = run("ladder", "--device", "simulator", "--rungs", rung)
    assert done.exit_code == 1
    assert text in done.stdout
    assert run("ladder", "--device", "simulator", "--rungs", rung, "--json").exit_code == 1


@pytest.mark.usefixtures("on_a_gpu")
def test_system_b_prints_what_its_source_prints():
    shown = run("ladder", "--system", "B", "--n", "16777216").stdout
    printed = shown[shown.index("N = 16777216, block size 256, repeat 5") :]
    assert "CPU reference (double): 500.000000\n" in printed
    assert "  atomic   133.7400 ms\n  shared   4.2200 ms\n  shuffle  3.8700 ms\n" in printed
    assert "  shared/atomic: 31.69x\n  shuffle/atomic: 34.56x\n  shuffle/shared: 1.09x\n" in printed
    assert "  atomic   500.250000  0.25\n" in printed
    assert row(shown[: shown.index("N = 16777216, ")], "atomic")[4:6] == ["133.74", "ms"], "the source gives no %"
    assert "block size" not in run("ladder", "--system", "A").stdout


def test_system_b_without_times_or_rungs_has_dashes(ladder):
    shown = run("ladder", "--device", "simulator", "--rungs", "shared").stdout
    assert "  shared  –\n" in shown
    assert "  shared/atomic: –\n" in shown


def test_a_fault_of_a_simulated_kernel_is_told_in_a_line(ladder):
    ladder["make"] = lambda rung: fake.counted(rung, value=None, relative_error=None, correct=False, fault="a race")
    done = run("ladder", "--device", "simulator", "--rungs", "shared,race")
    assert done.exit_code == 1
    assert "\nrace: a race\n" in done.stdout
    assert row(done.stdout, "race")[-4:] == ["–", "wrong,", "on", "purpose"]
    assert "  shared  –  –\n" in done.stdout


def test_what_the_device_cannot_run_is_left_out_and_said(ladder, monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_SIMULATED_DEVICE", "T4")
    done = run("ladder", "--device", "simulator", "--json")
    assert ladder["rungs"] == ["slow"]
    assert "fast is left out: Tesla T4 has no clusters\n" in done.stderr
    done = run("ladder", "--device", "simulator", "--rungs", "fast")
    assert done.exit_code == 2
    assert done.stderr == "UnsupportedError: fast is left out: Tesla T4 has no clusters\n"


@pytest.mark.usefixtures("on_a_gpu")
def test_no_figure_is_cut_off_in_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in run("ladder", "--system", "all").stdout


@pytest.mark.parametrize(
    "command", [("info",), ("operators",), ("attributes", "--device", "simulator"), ("exercise", "list")]
)
def test_tables_fit_eighty_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = run(*command)
    assert done.exit_code == 0
    lines = [line for line in done.stdout.splitlines() if not line.startswith("simulated ")]
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "…" not in done.stdout


@pytest.mark.parametrize("simulated", [True, False])
def test_the_ladders_table_is_stacked_where_it_is_too_wide(ladder, monkeypatch, request, simulated):
    if not simulated:
        request.getfixturevalue("on_a_gpu")
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("ladder", *(["--device", "simulator"] if simulated else [])).stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines if not line.startswith("simulated ")) <= 80
    wide = [line.split() for line in lines if line.split()[:1] == ["slow"]]
    monkeypatch.setenv("COLUMNS", "30")
    parts = [
        line.split()
        for line in run("ladder", "--device", "simulator").stdout.splitlines()
        if line.split()[:1] == ["slow"]
    ]
    assert len(parts) > len(wide) >= 1, "each part names the rungs"
    if simulated:
        assert [cell for part in parts for cell in part[1:]] == [cell for part in wide for cell in part[1:]], (
            "no figure is lost"
        )


def test_the_progress_bar_names_the_rung_that_runs(ladder, monkeypatch):
    terminal = Console(force_terminal=True, width=120, record=True, file=io.StringIO())
    real = output.console
    monkeypatch.setattr(output, "console", lambda stderr=False: terminal if stderr else real())
    seen = []

    def watched(rung):
        with terminal.capture() as captured:
            bars[0].refresh()
        seen.append(captured.get())
        return fake.counted(rung)

    bars, make = [], output.progress
    monkeypatch.setattr(rungs, "progress", lambda **kinds: bars.append(make(**kinds)) or bars[0])
    ladder["make"] = watched
    assert run("ladder", "--device", "simulator").exit_code == 0
    assert "ladder slow" in seen[0]
    assert "0/2" in seen[0]
    assert "ladder fast" in seen[1]
    assert "1/2" in seen[1]


# -- reduce -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stream():
    with simulator.use("H200"), Context.primary() as context, context.pushed(), Stream.create(context) as stream:
        yield stream


@pytest.mark.parametrize(("text", "axes"), [(None, None), ("0", 0), ("-1", -1), ("0,2", (0, 2))])
def test_axes(text, axes):
    assert reduce_command.parse_axis(text) == axes


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    return tmp_path / "x.npy"


def test_reduce_hands_the_public_call_only_what_was_asked_for(file, monkeypatch):
    calls = []

    class Answer:
        def numpy(self):
            return np.array([1.5, np.nan], np.float32)

    def reduce(x, op, **options):
        options["progress"](48, 48)
        calls.append((x, op, {name: value for name, value in options.items() if name not in ("stream", "progress")}))
        return Answer()

    monkeypatch.setattr(reduce_command.lr, "reduce_large", reduce)
    done = run("reduce", file, "--device", "simulator")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "simulated NVIDIA H200: as asked\n[1.5 nan]\n"
    more = ["--op", "max", "--axis", "1,0", "--dtype", "float64", "--accumulate", "float32", "--json"]
    done = run("reduce", file, "--device", "simulator", "--max-device-bytes", "64000", *more)
    assert calls == [
        (file, "sum", {"max_device_bytes": None}),
        (file, "max", {"max_device_bytes": 64000, "axis": (1, 0), "dtype": "float64", "accumulate": "float32"}),
    ]
    found = json.loads(done.stdout)
    assert found["value"] == [1.5, "nan"]
    assert (found["op"], found["axis"], found["shape"], found["dtype"]) == ("max", [1, 0], [3, 4], "float32")


def test_several_files_are_one_array(file, tmp_path):
    np.save(tmp_path / "y.npy", np.full((2, 4), 2, np.float32))
    done = run("reduce", file, tmp_path / "y.npy", "--device", "simulator", "--json")
    found = json.loads(done.stdout)
    assert (found["value"], found["shape"], found["file"]) == (28.0, [5, 4], [str(file), str(tmp_path / "y.npy")])


@pytest.mark.parametrize(
    "error",
    [ValueError("axis 7 is\nout of range"), NoDriverError("gone"), TypeError("what"), MemoryError("182 TiB")],
)
def test_the_librarys_errors_are_one_line(file, monkeypatch, error):
    def reduce(*_, **__):
        raise error

    monkeypatch.setattr(reduce_command.lr, "reduce_large", reduce)
    done = run("reduce", file, "--device", "simulator", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    line = done.stderr.splitlines()[1:]
    assert line == [f"{type(error).__name__}: {' '.join(str(error).split())}"]


@pytest.mark.parametrize("name", ["nothing.npy", "text.npy", "empty.npy", "several.npz", "words.npy"])
def test_files_that_cannot_be_reduced(tmp_path, name):
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.savez(tmp_path / "several.npz", a=np.ones(3), b=np.ones(2))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    done = run("reduce", tmp_path / name, "--device", "simulator")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


class Code:
    """Creates a file when it is read from a pickle."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_file_runs_no_code(tmp_path):
    np.save(tmp_path / "code.npy", np.array([Code(str(tmp_path / "made"))], object))
    done = run("reduce", tmp_path / "code.npy", "--device", "simulator")
    assert (done.exit_code, done.stdout) == (2, "")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("shape", [f"({10**30},)", f"({2**62}, {2**62})", "(4,", "-" * 9000 + "4", "(True,)"])
def test_a_damaged_header_is_one_line(tmp_path, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16))
    done = run("reduce", tmp_path / "x.npy", "--device", "simulator")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(("ValueError: ", "MemoryError: "))  # so CPython 3.12 names what is nested too deep
    assert done.stderr.count("\n") == 1


def test_an_axis_that_is_no_number(file):
    done = run("reduce", file, "--axis", "x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "not 'x'" in done.stderr


# -- attributes -------------------------------------------------------------------------------------------------------


def test_rows_of_attributes():
    given = {"name": "cluster", "id": 4, "field": "cluster", "since": "11.8", "supported": True, "observed": None}
    given |= {"purpose": "what for", "measured": "1 µs, 2 µs without"}
    assert attributes.as_objects([given | {"extra": 1}]) == [given]
    assert list(attributes.as_objects([given])[0]) == list(attributes.COLUMNS)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(attributes.render([given, given | {"supported": False, "observed": "rank 3"}]))
    shown = console.export_text()
    assert "yes" in shown
    assert "no" in shown
    assert "rank 3" in shown
    with pytest.raises(KeyError):
        attributes.as_objects([{"id": 1}])


# -- output that nobody takes -----------------------------------------------------------------------------------------


@pytest.fixture(params=["operators", "operators --json", "operators --markdown", "reduce --json --device simulator x"])
def command(request, tmp_path):
    """Return a command that is run in a process of its own, without its standard output."""
    np.save(tmp_path / "x.npy", np.ones(10, np.float32))
    words = [str(tmp_path / "x.npy") if word == "x" else word for word in request.param.split()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def execute(stdout):
        return subprocess.run(
            [sys.executable, "-m", "lowlevel_reduce", *words],
            check=False, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=300, env=environment,
        )  # fmt: skip

    return execute


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is another error there")
def test_a_closed_pipe_ends_a_command_without_a_word(command):
    read, write = os.pipe()
    os.close(read)
    done = command(write)
    os.close(write)
    assert [line for line in done.stderr.splitlines() if not line.startswith("simulated")] == []
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no file that is always full")
def test_a_full_disk_is_one_line_and_exit_code_2(command):
    with open("/dev/full", "w") as full:
        done = command(full)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("simulated")]
    assert (done.returncode, lines) == (2, ["OSError: [Errno 28] No space left on device"])
