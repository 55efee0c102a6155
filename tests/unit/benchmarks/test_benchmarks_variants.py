"""Variants of the library: how the command line spells them, and what they change while they are made."""

import re
import shutil
import sys

import pytest

from benchmarks.measure import records, timing
from benchmarks.measure.figures import OURS
from benchmarks.measure.harness import Harness, ours
from benchmarks.measure.problems import Case, check
from benchmarks.measure.timing import ROOT
from benchmarks.profile import variants
from benchmarks.profile.variants import Variant, case_of, variant_of
from lowlevel_reduce import simulator
from lowlevel_reduce.compiler import program
from lowlevel_reduce.compiler.sources import source_root
from lowlevel_reduce.strategy import column_costs


@pytest.mark.parametrize(
    ("text", "case", "name"),
    [
        ("sum float32 2^10", Case("sum", (1024,)), "sum float32 2^10"),
        ("max float16 8x2^20 axis=1", Case("max", (8, 1 << 20), 1, "float16"), "max float16 8 x 2^20, axis 1"),
        ("sum int8 99 shift=3", Case("sum", (99,), None, "int8", shift=3), "sum int8 99, from element 3 on"),
        (
            "sum float32 8x4x2 axis=0,2 strides=8,2,1 shift=1",
            Case("sum", (8, 4, 2), (0, 2), strides=(8, 2, 1), shift=1),
            "sum float32 8 x 4 x 2, axes 0 and 2, strides 8 2 1, from element 1 on",
        ),
    ],
)
def test_a_case_in_words(text, case, name):
    assert case_of(text) == case
    assert variants.name_of_case(case) == name


def test_segments_are_those_of_the_suite():
    case = case_of("8 of 2^25")
    assert (case.rows, case.size) == (8, 1 << 28)
    assert variants.name_of_case(case) == "8 segments of 268435456 float32"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sum",
        "sum float32",
        "nothing float32 8",
        "sum float32 8x",
        "sum float32 8 axis=1",
        "sum float32 8,9",
        "sum float32 8x9 axis=0,2",
        "sum float32 8x9 strides=1",
    ],
)
def test_no_case(text):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever part is wrong
        case_of(text)


def test_a_variant_in_words(tmp_path):
    (tmp_path / "operators.cuh").touch()
    text = f"more L1 sources={tmp_path} launch.shared_memory_carveout=0 strategy.column_costs._GAP=1.0 plan.cluster=2"
    expected = Variant(
        "more L1", tmp_path, {"strategy.column_costs._GAP": 1.0}, {"shared_memory_carveout": 0}, {"cluster": 2}
    )
    assert variant_of(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is a name and then"),
        ("launch.priority=1", "is a name and then"),
        ("a plan.cluster=2 b", "is a name and then"),
        ("a sources=/nowhere", "lacks operators.cuh"),
        ("a launch.colour=3", "a launch has no colour"),
        ("a strategy.whole.COLOUR=3", "has no strategy.whole.COLOUR"),
        ("a nothing.COLOUR=3", "has no nothing.COLOUR"),
        ("a COLOUR=3", "has no COLOUR"),
        ("a plan.cluster=os.abort()", "malformed"),
    ],
)
def test_no_variant(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        variant_of(text)


def test_what_a_variant_changes_is_as_before_afterwards(tmp_path):
    (tmp_path / "operators.cuh").write_text("// none")
    before = column_costs._GAP
    with Variant("other", tmp_path, {"strategy.column_costs._GAP": before + 1}).applied():
        assert before + 1 == column_costs._GAP
        assert program.source_tree().root == tmp_path
    assert before == column_costs._GAP
    assert program.source_tree().root == source_root()


def test_an_attribute_that_the_library_asks_for_is_the_variants():
    with Variant("x", launch={"programmatic_stream_serialization": False, "priority": 0}).applied():
        made = variants.mapping.template(32, 1, True, False)
    assert (made.programmatic_stream_serialization, made.priority) == (False, 0)
    assert variants.mapping.template(32, 1, True, False).programmatic_stream_serialization


def test_a_line_says_each_ratio_and_each_failure():
    entries = {OURS: {"us": 2.0}, "x": {"us": 2.5}, "y": {"error": "CompileError: no"}}
    assert variants.line_of("sum", entries) == f"{'sum':34} one tree 2.00, x 2.50 (1.250), y FAILED CompileError: no"
    assert "x 2.50" in variants.line_of("sum", {OURS: {"error": "no"}, "x": {"us": 2.5}})


class Stub:
    """The harness, without a device: every contender is applied, not made ready, and takes a microsecond."""

    def __init__(self, stream, rounds, situation_rounds):
        assert rounds == situation_rounds

    def inputs(self, case, mode, *, spare):
        return variants.Inputs(case, [0])

    def measure_around(self, case, makers, neighbours):
        entries = {maker.name: {"us": float(i + 1)} for i, maker in enumerate(makers)}
        return dict.fromkeys(("rotated", *neighbours), entries)

    def release(self):
        pass

    stream = None


@pytest.fixture
def without_a_device(monkeypatch):
    import contextlib
    from types import SimpleNamespace

    monkeypatch.setattr(variants, "Harness", Stub)
    stream = SimpleNamespace(context=SimpleNamespace(device=None))
    monkeypatch.setattr(variants, "opened", lambda: contextlib.nullcontext(stream))
    monkeypatch.setattr(variants, "conditions", lambda device, commit: {"commit": commit})


def test_the_file_says_what_was_varied(without_a_device, tmp_path, capsys):
    file = tmp_path / "out.jsonl"
    argv = ["--case", "sum float32 2^10", "--variant", "x launch.priority=1", "--json", str(file), "--commit", "abc"]
    argv += ["--variant", "y strategy.column_costs._BROKEN_LINES={64:2.0}"]
    assert variants.main(argv) == 0
    found = records.read(file, "variants")
    assert found.conditions == {"commit": "abc"}
    x, y = found.facts["variants"]
    assert (x["name"], x["launch"]) == ("x", {"priority": 1})
    assert (y["name"], y["constants"]) == ("y", {"strategy.column_costs._BROKEN_LINES": "{64: 2.0}"})
    entries = {OURS: {"us": 1.0}, "x": {"us": 2.0}, "y": {"us": 3.0}}
    assert found.records == [{"cell": "sum float32 2^10", "mode": "rotated", "entries": entries}]
    assert "x 2.00 (2.000)" in capsys.readouterr().out


def test_each_case_has_a_record_for_each_situation(without_a_device, tmp_path, monkeypatch):
    monkeypatch.setattr(variants.Setting, "neighbours", lambda self, case: lambda inputs: ["after", "alone"])
    file = tmp_path / "out.jsonl"
    assert variants.main(["--case", "sum float32 2^10", "--around", "--json", str(file)]) == 0
    assert [record["mode"] for record in records.read(file, "variants").records] == ["rotated", "after", "alone"]


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the library whose version is another."""
    root = tmp_path / "old"
    shutil.copytree(ROOT / "lowlevel_reduce", root / "lowlevel_reduce", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "cuda_src").symlink_to(source_root())
    init = root / "lowlevel_reduce" / "version.py"
    init.write_text(re.sub(r'__version__ = "[^"]+"', '__version__ = "of another time"', init.read_text()))
    return root


def test_a_whole_checkout_is_a_contender_beside_this_one(checkout):
    """Each has modules of its own, and what is measured of both is right to the bit."""
    case, other = Case("sum", (3, 5000), 1), variant_of(f"old checkout={checkout}")
    with simulator.use("H200"), timing.opened() as stream:
        harness = Harness(stream)
        inputs = harness.inputs(case, "hot")
        here, there = ours(case, inputs, stream), other.maker(case, inputs, stream)()
        for ready in (here, there):
            ready.spoil()
            ready.enqueue(0)
            check(case, ready.results(), exact=True)
        with other.checkout.entered() as package:
            assert package.__version__ == "of another time"
            assert sys.modules["lowlevel_reduce.plans.array"].__file__.startswith(str(checkout))
        there.close()
        here.close()
        harness.release()
    assert sys.modules["lowlevel_reduce"].__version__ != "of another time"
    assert str(checkout) not in sys.path
    told = other.told()
    assert (told["checkout"], len(told["checkout_sources"])) == (checkout.name, 12)


def test_what_is_no_checkout_is_refused(tmp_path, checkout):
    with pytest.raises(ValueError, match="is no checkout"):
        variant_of(f"old checkout={tmp_path}")
    with pytest.raises(ValueError, match="differs by nothing else"):
        variant_of(f"old checkout={checkout} plan.cluster=2")


@pytest.mark.parametrize("names", [["x", "x"], [OURS]])
def test_names_are_told_apart(without_a_device, tmp_path, names, capsys):
    argv = ["--case", "sum float32 2^10", "--json", str(tmp_path / "out.jsonl")]
    for name in names:
        argv += ["--variant", name]
    with pytest.raises(SystemExit):
        variants.main(argv)
    assert "names of their own" in capsys.readouterr().err
