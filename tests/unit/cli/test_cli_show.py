"""What would be launched, what kernels use and their code, as the command shows them: without a compiler or a GPU."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowlevel_reduce import driver
from lowlevel_reduce.cli import app, code, facts, mapped, ptx, sass
from lowlevel_reduce.cli import show as command
from lowlevel_reduce.compiler import Cubin, Program, Resources

USED = Resources(64, 25_120, 0, 0, 0, None, 1)
COLUMNS = ("show", "sum", "--shape", "2048x512", "--axis", "0", "--for", "H200")
COLOUR = re.compile(r"\x1b\[(?:\d;)?3\d")


@pytest.fixture
def compiled(monkeypatch):
    """Compile nothing; the test sees what was to be compiled, and may say which texts spill."""
    asked = {"spills": 0, "kernels": []}

    def compile_kernel(source, architecture, *, tree, options):
        asked["kernels"].append((source.entry, architecture, tree, options))
        program = Program(source.entry, (source.text, *source.spare)[asked["spills"]], options=options)
        kernels = {source.entry: USED}
        return Cubin(b"", (source.entry,), kernels, architecture, (12, 9), "", program, "cubin", from_cache=False)

    monkeypatch.setattr(mapped, "compile_kernel", compile_kernel)
    monkeypatch.setattr(facts, "kernel_code", lambda data, name: bytes(16 * 1464))
    monkeypatch.delenv("LOWLEVEL_REDUCE_STRATEGY", raising=False)
    return asked


def run(*arguments, **variables):
    return CliRunner().invoke(app.app, [str(argument) for argument in arguments], env=variables)


def said(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# -- the plan and the resources ---------------------------------------------------------------------------------------


def test_the_plan_of_columns(compiled):
    found = said(*COLUMNS)
    plan, kernel = found["plan"], found["sum_float32_float64_float32_columns"]
    assert plan["problem"] == "512 rows of 2,048 elements: columns"
    assert (plan["kept axes"], plan["reduced axes"]) == ("512 at 4 bytes", "2,048 at 2,048 bytes")
    assert (plan["strategy"], plan["because"]) == ("columns", "rows lie side by side in memory")
    assert "8 blocks share a row" in plan["of which"]
    assert (kernel["grid, blocks"], kernel["block, threads"], kernel["cluster, blocks"]) == (256, 256, 8)
    assert (kernel["static shared bytes"], kernel["dynamic shared bytes"]) == (25_120, 0)
    assert kernel["launch attributes"] == "programmatic_stream_serialization"
    assert [(entry, architecture) for entry, architecture, *_ in compiled["kernels"]] == [
        ("sum_float32_float64_float32_columns", "sm_90")
    ]


def test_kernels_are_in_launch_order_and_a_forced_strategy_is_told_from_the_environments(compiled, monkeypatch):
    whole = ("show", "sum", "--shape", "300000", "--for", "H200")
    found = said(*whole, "--strategy", "two_pass")
    assert [name.rpartition("float32_")[2] for name in found] == ["plan", "first_pass", "second_pass"]
    assert found["plan"]["because"] == "as --strategy says"
    assert found["plan"]["workspace bytes"] == 256 + 16 * 37
    monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "cooperative")
    found = said(*whole)
    assert found["plan"]["because"] == "as the variable LOWLEVEL_REDUCE_STRATEGY says"
    kernel = found["sum_float32_float64_float32_cooperative"]
    assert (kernel["grid, blocks at most"], kernel["launch attributes"]) == (37, "cooperative")
    monkeypatch.delenv("LOWLEVEL_REDUCE_STRATEGY")
    assert "arrays of at most 1572 x 4 KiB" in said(*whole)["plan"]["because"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--where",), "sum_where_"),
        (("--nan", "ignore"), "sum_ignoring_nan_float32_"),
        (("--dtype", "float64", "--accumulate", "compensated"), "sum_float64_compensated_"),
        (("--result-dtype", "float64"), "sum_float32_float64_float64_"),
    ],
)
def test_options_reach_the_operator(compiled, arguments, expected):
    _, kernel = said("show", "sum", "--shape", "300000", "--for", "H200", *arguments)
    assert kernel.startswith(expected)


def test_strides_reach_the_problem(compiled):
    plan = said("show", "sum", "--shape", "10x20", "--axis", "1", "--strides-bytes", "80,-4", "--for", "H200")["plan"]
    assert (plan["problem"], plan["reduced axes"]) == ("10 rows of 20 elements: strided", "20 at -4 bytes")


def test_resources_say_how_many_blocks_are_left_after_spills(compiled):
    kernel = said(*COLUMNS, "--resources")["sum_float32_float64_float32_columns"]
    assert (kernel["registers"], kernel["code bytes"], kernel["that fit unspilled"]) == (64, 16 * 1464, 3)
    compiled["spills"] = 1
    kernel = said(*COLUMNS, "--resources")["sum_float32_float64_float32_columns"]
    assert (kernel["blocks wanted to fit"], kernel["that fit unspilled"]) == (3, 2)


def test_an_array_without_rows_has_no_kernels(compiled):
    assert list(said("show", "sum", "--shape", "5x0", "--axis", "0", "--for", "H200")) == ["plan"]


def test_the_plan_fits_eighty_columns_and_has_no_colours_in_a_pipe(compiled):
    for more in ((), ("--against", "max --for A100"), ("--resources", "--against", "max --for A100")):
        done = run(*COLUMNS, *more, COLUMNS="80")
        assert done.exit_code == 0
        assert max(map(len, done.stdout.splitlines())) == 80 if more else 60
        assert "\x1b" not in done.stdout


# -- against another --------------------------------------------------------------------------------------------------


def test_what_differs_is_marked(compiled):
    lines = run(*COLUMNS, "--against", "max --for A100").stdout.splitlines()
    marked = {line[2:].split("  ")[0] for line in lines if line.startswith("*")}
    assert {"reduction", "GPU", "accumulator", "kernel", "cluster, blocks", "grid, blocks"} <= marked
    assert not {"problem", "strategy", "block, threads"} & marked


def test_kernels_that_only_one_has_stand_beside_nothing(compiled):
    done = run("show", "sum", "--shape", "300000", "--for", "H200", "--against", "--strategy two_pass")
    assert "* kernel                –  sum_float32_float64_float32_second_pass" in done.stdout


def test_another_gpu_does_not_keep_the_first_ones_multiprocessors(compiled):
    whole = ("show", "sum", "--shape", "300000", "--for", "sm_80", "--multiprocessors", "108")
    found = said(*whole, "--against", "--for H200")
    assert found["first"]["plan"]["GPU"] == "sm_80, 108 multiprocessors, no clusters"
    assert found["second"]["plan"]["GPU"] == "sm_90, 132 multiprocessors"


def test_another_copy_of_the_sources_is_compiled(compiled, tmp_path):
    (tmp_path / "operators.cuh").touch()
    assert run(*COLUMNS, "--against", f"--sources {tmp_path}").exit_code == 0
    mine, theirs = (tree for _, _, tree, _ in compiled["kernels"])
    assert (theirs.root, mine.root == tmp_path) == (tmp_path, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--against", "--sass"), "and not how to show it: sass"),
        (("--against", "--strides-bytes a"), "--strides-bytes takes integers"),
        (("--sources", "/nowhere"), "/nowhere is no copy of cuda_src"),
        (("--sass", "--ptx"), "one thing is shown at a time: --ptx or --sass"),
        (("--lines",), "--lines goes with the code of one reduction"),
        (("--sass", "--lines", "--against", "max"), "--lines goes with the code of one reduction"),
        (("--at", "0"), "--at goes with the code of one reduction"),
        (("--strategy", "tiles"), "there is no strategy 'tiles' for rows"),
    ],
)
def test_what_makes_no_sense_is_one_line(compiled, arguments, words):
    done = run(*COLUMNS, *arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr


def test_a_shape_is_needed_and_an_option_that_is_none_is_a_wrong_usage(compiled):
    assert "--shape" in run("show", "sum", "--for", "H200").stderr
    done = run(*COLUMNS, "--against", "--bogus")
    assert (done.exit_code, "--bogus" in done.stderr) == (2, True)  # the words are those of Click


def test_without_a_driver_it_is_the_simulated_gpu_and_says_so(compiled, monkeypatch):
    monkeypatch.setattr(driver, "why_unavailable", lambda: "no NVIDIA driver here")
    monkeypatch.setenv("LOWLEVEL_REDUCE_SIMULATED_DEVICE", "A100")
    done = run("show", "sum", "--shape", "100")
    assert done.stdout.startswith("simulated NVIDIA A100-SXM4-80GB: no NVIDIA driver here\n")
    assert "sm_80, 108 multiprocessors, no clusters" in done.stdout
    assert json.loads(run("show", "sum", "--shape", "100", "--json").stdout)["plan"]["strategy"] == "block"


# -- code -------------------------------------------------------------------------------------------------------------

SASS = """\
\t.section\t.text.k,"ax",@progbits
.text.k:
\t//## File "/somewhere/k", line 2
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/somewhere/deep/a.cuh", line 1
        /*0010*/              @!P0 BRA `(.L_x_0) ;
        /*0020*/                   NOP ;
\t//## File "/elsewhere/b.cuh", line 9
.L_x_0:
        /*0030*/                   EXIT ;
        /*0040*/                   NOP;
"""
TEXTS = {"k": "one\n  two // of k\n", "a.cuh": "the wrong a\n", "deep/a.cuh": "    the right a\n"}


@pytest.fixture
def disassembler(monkeypatch, tmp_path):
    """Put a program in the place of nvdisasm that prints `SASS`, without its places unless it is asked for them."""
    (tmp_path / "sass").write_text(SASS)
    tool = tmp_path / "nvdisasm"
    tool.write_text(f'#!/bin/sh\ncase "$*" in *-g*) cat {tmp_path}/sass;; *) grep -v "//##" {tmp_path}/sass;; esac\n')
    tool.chmod(0o755)
    monkeypatch.setattr(sass, "_nvdisasm", lambda: str(tool))


def test_machine_code_has_addresses_and_knows_where_it_comes_from(disassembler):
    lines = sass.listing(b"", "k", places=True)
    assert [(line.address, line.text.strip()) for line in lines] == [
        (0x00, "LDC R1, c[0x0][0x28] ;"),
        (0x10, "@!P0 BRA `(.L_x_0) ;"),
        (0x20, "NOP ;"),
        (None, ".L_x_0:"),
        (0x30, "EXIT ;"),
    ]
    assert lines[1].place == ("/somewhere/deep/a.cuh", 1)
    assert [line.place for line in sass.listing(b"", "k")] == [None] * 5
    assert [line.strip() for line in sass.disassemble(b"", "k")][-3:] == ["NOP ;", ".L_x_0:", "EXIT ;"]


def test_lines_of_sources_stand_above_their_code(disassembler):
    listing = code.Listing("k", sass.listing(b"", "k", places=True), "04x", TEXTS)
    assert [line.plain for line in code.render(listing)] == [
        "k:2  two // of k",
        "0000     LDC R1, c[0x0][0x28] ;",
        "deep/a.cuh:1  the right a",
        "0010     @!P0 BRA `(.L_x_0) ;",
        "0020     NOP ;",
        ".L_x_0:",
        "0030     EXIT ;",
    ]
    assert [entry["source"] for entry in code.as_objects(listing)] == [
        "k:2",
        "deep/a.cuh:1",
        "deep/a.cuh:1",
        None,
        None,
    ]


def test_code_near_an_address_and_in_ptx_near_a_line():
    lines = [sass.Line(f"I{i}", 16 * i) for i in range(40)]
    listing = code.Listing("k", [*lines[:20], sass.Line(".L_x_0:"), *lines[20:]], "04x")
    assert [line.text for line in code.around(listing, "0x148").lines] == [
        "I16", "I17", "I18", "I19", ".L_x_0:", "I20", "I21", "I22", "I23", "I24", "I25"]  # fmt: skip
    assert [line.text for line in code.around(listing, "0000").lines] == [f"I{i}" for i in range(6)]
    assert code.around(listing._replace(address="5d"), "624").lines[-1].text == "I39"
    for wrong, words in (("1000", "has no such address"), ("here", "--at takes an address")):
        with pytest.raises(ValueError, match=words):
            code.around(listing, wrong)


def test_differences_show_addresses_and_do_not_compare_them():
    def listing(title, *texts):
        return code.Listing(title, [sass.Line(f"    {text}", 16 * i) for i, text in enumerate(texts)], "04x")

    many = [f"I{i}" for i in range(9)]
    found = code.differences(listing("a", *many, "X", "Y"), listing("b", "NEW", *many, "X", "Z"))
    assert [line.plain for line in found] == [
        "--- a",
        "+++ b",
        "@@ -1,3 +1,4 @@",
        "+0000     NEW",
        *(f" {16 * (i + 1):04x}     I{i}" for i in range(3)),
        "@@ -8,4 +9,4 @@",
        *(f" {16 * (i + 1):04x}     {text}" for i, text in ((7, "I7"), (8, "I8"), (9, "X"))),
        "-00a0     Y",
        "+00b0     Z",
    ]
    assert [line.plain for line in code.differences(listing("a", "X"), listing("b", "X"))][2:] == ["the same 1 lines"]


def test_differences_do_not_compare_labels_where_anything_else_differs():
    def differences(*texts):
        listings = [code.Listing("one", [sass.Line(line) for line in text.split(",")], "04x") for text in texts]
        return [line.plain for line in code.differences(*listings) if line.plain[0] in "-+"][2:]

    jumps = "BRA `(.L_x_{0}),.L_x_{0}:,A,@P0 bra $L__BB0_{0},$L__BB0_{0}:"
    assert differences(f"X,{jumps.format(4)}", f"{jumps.format(3)},Y") == ["-X", "+Y"]
    assert differences("BRA `(.L_x_1),.L_x_1:,.L_x_2:", "BRA `(.L_x_2),.L_x_1:,.L_x_2:") == [
        "-BRA `(.L_x_1)",
        "+BRA `(.L_x_2)",
    ]


PTX = """\
// a comment
.version 8.8
.global .align 4 .u32 unused = 32;
.global .align 1 .b8 $str[3] = {97, 98, 0};
.visible .entry k(
\t.param .u64 p
)
{
\t.reg .b64 \t%rd<2>;
@LOC1@
\tmov.u64 \t%rd1, $str;
\t// begin inline asm
\tst.global.u32 [%rd1], unused2;
@LOC2@

$L__BB0_2:
\tret;
}
"""
PLAIN = PTX.replace("@LOC1@\n", "").replace("@LOC2@\n", "")
PLACED = (
    PTX.replace("@LOC1@", "$L__tmp0:\n\t.loc\t2 7 0, function_name $L__info_string0, inlined_at 1 2 3").replace(
        "@LOC2@", "\t.loc\t2 0 5"
    )
    + '\t.file\t1 "/w/k"\n\t.file\t2 "/w/a.cuh"\n\t.section\t.debug_str\n\t{\n.b8 0\n}\n'
)


def test_ptx_is_what_executes_with_the_numbers_of_its_lines():
    numbered = PLAIN.splitlines()
    found = ptx.listing(PLAIN)
    assert [line.text for line in found[:3]] == [
        ".version 8.8", ".global .align 1 .b8 $str[3] = {97, 98, 0};", ".visible .entry k("]  # fmt: skip
    assert [numbered[line.address - 1].expandtabs(4) for line in found] == [line.text for line in found]
    placed = ptx.listing(PLACED)
    assert [line[:2] for line in placed] == [line[:2] for line in found], "the same, with places"
    assert [line.place for line in placed if "mov" in line.text or "ret" in line.text] == [("/w/a.cuh", 7), None]


def test_the_command_shows_code_in_colours_where_there_is_a_terminal(compiled, monkeypatch):
    monkeypatch.setattr(sass, "listing", lambda *_, **__: [sass.Line("    @!P0 FADD R1, R2, 0x10 ;", 16)])
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
    plain = "sum_float32_float64_float32_columns for sm_90\n0010     @!P0 FADD R1, R2, 0x10 ;\n"
    assert run(*COLUMNS, "--sass").stdout == plain
    assert "has no such address" in run(*COLUMNS, "--sass", "--at", "20").stderr
    shown = run(*COLUMNS, "--sass", "--at", "10", **terminal).stdout
    assert "\x1b[36mR1\x1b[0m" in shown
    assert "\x1b[1mFADD\x1b[0m" in shown
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == plain
    assert not COLOUR.search(run(*COLUMNS, "--sass", "--no-color", **terminal).stdout)
    assert not COLOUR.search(run(*COLUMNS, "--sass", **{**terminal, "NO_COLOR": "1"}).stdout)
    assert said(*COLUMNS, "--sass") == {
        "sum_float32_float64_float32_columns": [{"address": 16, "text": "@!P0 FADD R1, R2, 0x10 ;", "source": None}]
    }


def test_the_ptx_is_what_a_simulated_gpu_runs_even_if_a_real_one_would_spill(compiled, monkeypatch):
    def compile_program(program, architecture, *, output, tree):
        assert (output, architecture) == ("ptx", "sm_90")
        return Cubin(program.source.encode(), (), {}, architecture, (12, 9), "", program, output, from_cache=False)

    monkeypatch.setattr(command, "compile_program", compile_program)
    compiled["spills"] = 1
    assert "__launch_bounds__(256, 3)" in run(*COLUMNS, "--ptx").stdout


def test_the_commands_of_the_page_on_debugging_are_commands(compiled, monkeypatch):
    page = (Path(__file__).resolve().parents[3] / "docs" / "debugging.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ python -m lowlevel_reduce (show .*)$", page, re.MULTILINE)
    monkeypatch.setattr(command, "_listing", lambda *_: code.Listing("", [sass.Line("", 0), sass.Line("", 9999)], "5d"))
    monkeypatch.setattr(mapped, "_tree", lambda root: None)
    for line in commands:
        assert run(*shlex.split(line)).exit_code == 0, line
    named = set(re.findall(r"`(--[a-z-]+)", page.partition("## See what runs")[2].partition("## On a GPU")[0]))
    assert named <= set(re.findall(r"--[a-z-]+", run("show", "--help").stdout))
    assert len(commands) >= 4


def test_without_a_disassembler_one_line_says_what_to_install(compiled, monkeypatch):
    monkeypatch.setattr(sass, "_of_packages", lambda: None)
    monkeypatch.setattr(sass.shutil, "which", lambda *_, **__: None)
    done = run(*COLUMNS, "--sass")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "pip install nvidia-cuda-nvdisasm" in done.stderr


def test_code_that_only_one_has_is_all_new(compiled, monkeypatch):
    monkeypatch.setattr(sass, "listing", lambda cubin, entry, **_: [sass.Line(entry.rpartition("_")[2], 0)])
    whole = ("show", "sum", "--shape", "300000", "--for", "H200", "--sass", "--against", "--strategy two_pass")
    lines = run(*whole).stdout.splitlines()
    assert [line for line in lines if not line.startswith("@")] == [
        "--- sum_float32_float64_float32_few_tiles for sm_90",
        "+++ sum_float32_float64_float32_first_pass for sm_90",
        "-0000 tiles",
        "+0000 pass",
        "--- no kernel",
        "+++ sum_float32_float64_float32_second_pass for sm_90",
        "+0000 pass",
    ]


def test_a_listing_is_compiled_with_places_only_when_they_are_shown(compiled, monkeypatch):
    monkeypatch.setattr(sass, "listing", lambda *_, places: [sass.Line(f"places {places}", 0)])
    for more, expected in (((), False), (("--lines",), True)):
        assert f"places {expected}" in run(*COLUMNS, "--sass", *more).stdout
        assert (mapped.LINE_INFO in compiled["kernels"][-1][3]) is expected
