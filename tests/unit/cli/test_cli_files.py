"""The pictures and the page of the ladder, read back: by a parser, by eye through their pixels, and in a browser."""

import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise

import browser
import cli_ladder as fake
import numpy as np
import pytest
from browser import needs_browser

from lowlevel_reduce import Context, ReduceError, UnsupportedError, simulator
from lowlevel_reduce.cli import ladder, pictures, report, sass
from lowlevel_reduce.cli.rungs import Options, Result
from lowlevel_reduce.cli.session import Session
from lowlevel_reduce.ladder import KernelFacts

pytestmark = pytest.mark.slow  # they draw pictures

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")

OPTIONS = Options(n=1000, dtype="float32", block=256, repeat=5)
ROOF = pictures.Roof("NVIDIA H200", 4814.0, 132 * 128 * 1.98e9)
SVG = "{http://www.w3.org/2000/svg}"


def results(make, system=None):
    return [Result(rung, make(rung)) for rung in fake.RUNGS.values() if system in (None, rung.system)]


@pytest.fixture
def context():
    with simulator.use("H200"), Context.primary() as context, context.pushed():
        yield context


@pytest.fixture
def page(context, monkeypatch):
    """Return a function that makes the page of a simulated run, or of one that believes that it was on a GPU.

    Its pictures are drawn if they are asked for, which takes most of its time: else an empty one stands for each.
    """
    drawing = pictures.inline_svg

    def climb(rungs, options, session, title):
        assert session.simulated
        assert (options.n, title) == (2**16 + 3, "counting")
        if rungs[0].id == "fast":
            raise UnsupportedError("the <simulator> lacks this")
        return [Result(rungs[0], fake.counted(rungs[0]))]

    def make(*, simulated, disassemble=lambda *_: SASS, drawn=False):
        monkeypatch.setattr(pictures, "inline_svg", drawing if drawn else lambda figure, name: "<svg></svg>")
        facts = KernelFacts(registers=41, shared_bytes=1040, spill_bytes=0, cubin=b"")
        monkeypatch.setattr(report, "rung_resources", lambda rung, *_, **__: {f"{rung.id}_kernel": facts})
        monkeypatch.setattr(sass, "disassemble", disassemble)
        monkeypatch.setattr(report, "source_diff", fake.source_diff)
        monkeypatch.setattr(report, "rung_prose", lambda rung: [("", f"What {rung.id} <is>."), ("Costs", "time")])
        monkeypatch.setattr(report.diagrams, "tree", lambda rung: None if rung.id == "race" else "<svg></svg>")
        monkeypatch.setattr(report, "rung_before", lambda rung: None if rung.id == "slow" else fake.RUNGS["slow"])
        monkeypatch.setattr(report, "climb", climb)
        found = results(fake.counted if simulated else fake.timed)
        return report.page(found, OPTIONS, Session(context, simulated=simulated, note="simulated: <because>"))

    return make


# -- pictures ---------------------------------------------------------------------------------------------------------


def svg_texts(text):
    return [element.text for element in ET.fromstring(text).iter(f"{SVG}text")]


def test_the_roof_of_a_device():
    for name, lanes, bandwidth in (("H200", 132 * 128, 4814.304), ("A100", 108 * 64, 2039.04)):
        with simulator.use(name), Context.primary() as context:
            roof = pictures.Roof.of(context)
            clock_hz = context.device.attribute("CLOCK_RATE") * 1e3
        assert roof.gb_per_s == pytest.approx(bandwidth)
        assert roof.additions_per_s == pytest.approx(lanes * clock_hz)


def test_bandwidth_of_each_rung_under_the_roof():
    (axes,) = pictures.timed_picture(results(fake.timed), ROOF, "bandwidth").axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([4e5 / us for us in fake.MICROSECONDS.values()])
    assert [label.get_text() for label in axes.get_yticklabels()] == list(fake.RUNGS)
    (line,) = axes.lines
    assert set(line.get_xdata()) == {4814.0}
    assert "GB/s" in axes.get_xlabel()
    assert axes.get_xlim()[1] > max(4814, 4e5 / 10)


def test_the_roofline_has_its_ridge_and_a_point_for_each_rung_that_computes():
    found = results(fake.timed)
    moved = fake.Rung("moved", "E", fake.SOURCE, operation="transpose")
    found.append(Result(moved, fake.timed(fake.RUNGS["tree"])))
    (axes,) = pictures.timed_picture(found, ROOF, "roofline").axes
    (line,) = axes.lines
    x, y = line.get_data()
    assert x[1] == pytest.approx(132 * 128 * 1.98e9 / 4814e9)
    assert y[0] == pytest.approx(x[0] * 4814)
    assert y[1] == y[2] == pytest.approx(132 * 128 * 1.98)
    points = axes.collections[0].get_offsets()
    assert len(points) == len(fake.RUNGS), "a transpose computes nothing"
    np.testing.assert_allclose(points[:, 0], 0.25, rtol=1e-6)
    np.testing.assert_allclose(points[:, 1], [1e5 / us for us in fake.MICROSECONDS.values()], rtol=1e-6)
    assert "per byte" in axes.get_xlabel()
    assert "a second" in axes.get_ylabel()


def test_rungs_without_a_time_are_not_drawn_as_zero():
    (axes,) = pictures.timed_picture(results(fake.counted), ROOF, "bandwidth").axes
    assert not axes.patches


@pytest.mark.parametrize(
    "heights", [[], [0.5], [0.5, 0.5], [0.0] * 9, [1.0] * 9, [0.1, 0.11, 0.8, 0.81, 0.82], [0.9] * 60]
)
def test_labels_keep_their_order_and_do_not_overlap(heights):
    spread = pictures._spread(heights)
    step = min(0.052, 0.94 / max(1, len(heights)))
    assert all(b - a > step - 1e-9 for a, b in pairwise(spread))
    assert all(0.029 < height < 0.971 for height in spread)


def test_a_kernel_that_was_stopped_is_not_drawn_as_one_that_counted_nothing():
    found = [Result(rung, fake.counted(rung, counters=None if name == "race" else fake.COUNTERS))
             for name, rung in fake.RUNGS.items()]  # fmt: skip
    for axes in pictures.counters_picture(found).axes:
        assert len(axes.patches) == len(fake.RUNGS) - 1
    labels = [label.get_text() for label in pictures.counters_picture(found).axes[0].get_yticklabels()]
    assert labels == [name for name in fake.RUNGS if name != "race"]


def test_a_simulated_run_is_drawn_by_its_counters(context):
    figure = pictures.of_session(results(fake.counted), Session(context, simulated=True, note=None))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["sectors per load request", "bank conflicts", "divergent branches", "atomics"]
    assert [axes.patches[0].get_width() for axes in figure.axes] == [4, 77, 1234567, 65]


def test_png_and_svg_files(tmp_path):
    figure = pictures.timed_picture(results(fake.timed), ROOF)
    pictures.save(figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pictures.save(figure, tmp_path / "x.svg")
    texts = svg_texts((tmp_path / "x.svg").read_text(encoding="utf-8"))
    assert {"slow", "fast", "race"} <= set(texts)


def test_inline_pictures_share_no_ids_and_take_the_pages_colour():
    figure = pictures.timed_picture(results(fake.timed), ROOF)
    one, other = (pictures.inline_svg(figure, name) for name in ("one", "other"))
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', one))
    assert references
    assert references <= ids[0]
    assert "currentColor" in one
    assert pictures.inline_svg(figure, "one") == one, "the same picture, the same text"


# -- machine code -----------------------------------------------------------------------------------------------------

SASS = [
    "    S2R R0, SR_TID.X ;",
    ".L_x_1:",
    "    LDG.E R1, desc[UR4][R2.64] ;",
    "    @P0 BRA `(.L_x_3) ;",
    ".L_x_2:",
    "    LDG.E R3, desc[UR4][R2.64] ;",
    "    LDG.E R4, desc[UR4][R2.64] ;",
    "    @P1 BRA `(.L_x_2) ;",
    ".L_x_3:",
    "    LDS R5, [R6] ;",
    "    @!P0 BRA `(.L_x_3) ;",
    "    EXIT ;",
]


READS = "the loop that reads the input"
NONE = "all of it, since it has no loop"


def test_the_loop_that_reads_most():
    assert sass.hot_part(SASS) == (READS, SASS[4:8])
    outer = [*SASS[:-1], "    @P3 BRA `(.L_x_1) ;"]
    assert sass.hot_part(outer) == (READS, outer[1:])
    around = [".L_x_0:", *SASS[4:8], "    @P4 BRA `(.L_x_0) ;"]
    assert sass.hot_part(around) == (READS, SASS[4:8]), "of equals the inner one"
    twice = [*SASS[:-1], *(line.replace("_2", "_9") for line in SASS[4:8]), "    EXIT ;"]
    assert sass.hot_part(twice) == (READS, SASS[4:8]), "the input's, and not that of the partials"


def test_a_kernel_whose_loop_reads_only_shared_memory():
    what, shown = sass.hot_part([line for line in SASS if "LDG" not in line])
    assert (what, shown[1:]) == ("its loop", SASS[9:11])


def test_a_kernel_without_a_loop():
    assert sass.hot_part(SASS[:4]) == (NONE, SASS[:4])
    trap = ["    EXIT ;", ".L_x_0:", "    BRA `(.L_x_0);"]
    assert sass.hot_part(trap) == (NONE, trap)
    assert sass.hot_part(trap[1:]) == (NONE, trap[1:])


def test_what_stands_behind_the_end_and_comes_back_is_no_loop():
    shuffle = [
        "    BRA.DIV UR4, `(.L_x_7) ;", "    LDS R1, [R2] ;", ".L_x_8:", *SASS, ".L_x_7:",
        "    WARPSYNC.COLLECTIVE R8, `(.L_x_9) ;", ".L_x_9:", "    LDS R1, [R2] ;", "    BRA `(.L_x_8) ;",
    ]  # fmt: skip
    assert sass.hot_part(shuffle) == (READS, SASS[4:8])
    without = [line for line in shuffle if line not in (SASS[7], SASS[10])]
    assert sass.hot_part(without) == (NONE, without)


def test_loads_that_are_unrolled_are_shown_and_not_the_loop_of_what_is_left_over():
    loads = [".L_x_5:", *(f"    LDG.E.128 R{4 * i}, desc[UR4][R2.64] ;" for i in range(4)), "    FADD R0, R0, R4 ;"]
    more = [".L_x_6:", *loads[1:5], *loads[5:] * 9]
    for first, second in ((loads, more), (more, loads)):
        kernel = [*SASS[:-1], *first, *second, ".L_x_7:", "    EXIT ;"]
        assert sass.hot_part(kernel) == ("what reads the input, which is in no loop", loads)
    inside = [*SASS[:-1], ".L_x_6:", *loads[1:], "    @P1 BRA `(.L_x_6) ;", "    EXIT ;"]
    assert sass.hot_part(inside)[0] == READS, "these are in a loop"


def test_what_is_no_cubin_is_refused():
    with pytest.raises(ReduceError, match="nvdisasm"):
        sass.disassemble(b"no cubin", "k")


# -- the page ---------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What the tests ask of a page: its elements by tag, its text, and that every element is closed."""

    VOID = frozenset({"meta", "link", "br", "img", "use", "path", "rect", "line"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts, self.cells = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((tuple(self.open), data))
        if "td" in self.open:
            self.cells[-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def fetched(text):
    """Return every address that a browser would fetch for a page: none is allowed but data and its own fragments."""
    parsed = Page(text)
    named = ("src", "href", "xlink:href", "srcset", "data", "poster", "action")
    links = [(tag, attributes[name]) for tag, attributes in parsed.elements for name in named if name in attributes]
    links += [("css", address) for address in re.findall(r"url\(\s*['\"]?([^'\")]+)", text)]
    links += [("css", address) for address in re.findall(r"@import\s+(\S+)", text)]
    return [link for link in links if not link[1].startswith(("#", "data:"))]


def test_what_would_be_fetched_is_found():
    assert fetched('<p><a href="#x">a</a></p>') == []
    assert fetched('<script src="https://x/y.js"></script>') == [("script", "https://x/y.js")]
    assert fetched("<style>p { background: url('//x/y.png') }</style>") == [("css", "//x/y.png")]


@pytest.mark.parametrize("simulated", [True, False])
def test_the_page_holds_everything_and_fetches_nothing(page, simulated):
    text = page(simulated=simulated, drawn=True)
    parsed = Page(text)
    assert fetched(text) == []
    assert not parsed.all("script")
    figures = [attributes.get("id", "tree") for attributes in parsed.all("figure")]
    pictures_of = ["picture-counters", "picture-roofline"] if simulated else ["picture-bandwidth", "picture-roofline"]
    assert figures[:2] == pictures_of
    assert figures[2:5] == ["diagram-divergence", "diagram-banks", "diagram-cluster"]
    assert figures[5:] == ["tree"] * (len(fake.RUNGS) - 1), "one for each rung whose order can be told"
    assert len(parsed.all("svg")) == len(figures)
    sections = [attributes["id"] for attributes in parsed.all("section")]
    assert sections == [f"rung-{name}" for name in fake.RUNGS]
    links = [attributes["href"] for attributes in parsed.all("a")]
    assert [link for link in links if "#counter-" not in link] == [f"#{name}" for name in sections]
    expected = ["slow", "2,049", "4.00"] if simulated else ["slow", "8,000.0", "50"]
    assert parsed.cells[: len(expected)] == expected
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_page_marks_what_changed_and_escapes_it(page):
    text = page(simulated=True)
    plain = re.sub(
        r'</?span(?: class="\w{1,2}")?>',
        "",
        text.replace('<span class="new">', "[new]").replace('<span class="gone">', "[gone]"),
    )
    assert "[new]fast &amp; new;" in plain
    assert "[gone]old &lt; line;" in plain
    assert '<span class="o">&lt;</span>' in text, "in colours"
    assert "<p>What fast &lt;is&gt;.</p>" in re.sub(r"\s*\n\s*", "", text)
    assert "<p><strong>Costs:</strong> time</p>" in text
    assert "what is not in slow is marked" in text
    assert "simulated: &lt;because&gt;" in text
    assert "the loop that reads the input" in text
    assert '<pre class="plain sass">.L_x_2:\n    LDG.E R3, desc[UR4][R2.64] ;' in text


def test_the_page_without_a_disassembler_says_what_is_missing(page, monkeypatch):
    from cuda import pathfinder

    disassemble = sass.disassemble
    text = page(simulated=True)
    assert "nvidia-cuda-nvdisasm" not in text
    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda _: None, raising=False)
    monkeypatch.setattr(sass.shutil, "which", lambda *_, **__: None)
    with pytest.raises(sass.NoToolError):
        disassemble(b"", "k")
    text = page(simulated=True, disassemble=disassemble)
    assert "Machine code of slow_kernel: not shown" in text
    assert "pip install nvidia-cuda-nvdisasm" in text


def test_the_page_of_a_gpu_says_that_its_counters_are_simulated(page):
    assert "of a simulated run" not in page(simulated=True)
    text = page(simulated=False)
    assert "of a simulated run of 65,539 elements" in text
    assert text.count("Not counted: the &lt;simulator&gt; lacks this") == 1
    cells = Page(text).cells
    assert cells[cells.index("instructions by class: float") + 1] == "12"


def test_a_rung_that_is_not_as_expected_stands_out(page, monkeypatch):
    assert 'class="wrong"' not in page(simulated=True)
    right = fake.counted
    monkeypatch.setattr(fake, "counted", lambda rung: right(rung, correct=rung.id == "race"))
    assert page(simulated=True).count('class="wrong"') == len(fake.RUNGS)


def test_a_kernel_that_cannot_be_disassembled_costs_its_code_and_not_the_page(page):
    def refuse(cubin, kernel):
        if kernel == "fast_kernel":
            raise ReduceError("nvdisasm cannot read the cubin of <fast_kernel>: unknown architecture")
        return SASS

    text = page(simulated=False, disassemble=refuse)
    assert "Machine code of fast_kernel: not shown" in text
    assert "the cubin of &lt;fast_kernel&gt;: unknown architecture" in text
    assert "Machine code of slow_kernel: the loop that reads the input" in text


def test_a_disassembler_of_the_toolkit_will_do_and_its_end_is_told(monkeypatch, tmp_path):
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\nprintf '.text.k:\\n        /*0000*/ EXIT ;\\n'\n")
    tool.chmod(0o755)
    # Older bindings come without it.
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.delattr("cuda.pathfinder", raising=False)
    monkeypatch.setattr(sass.shutil, "which", lambda name, path=None: str(tool))
    assert sass.disassemble(b"", "k") == ["    EXIT ;"]
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(sass, "_SECONDS", 0.2)
    with pytest.raises(ReduceError, match="did not disassemble k: .* timed out"):
        sass.disassemble(b"", "k")
    tool.write_text("")
    with pytest.raises(ReduceError, match="did not disassemble k"):
        sass.disassemble(b"", "k")


REAL = {
    # What a GPU may give besides times and right results: nothing timed, nothing summed, an empty input, one element.
    "fast": {"microseconds": None, "gb_per_s": None, "percent_of_peak": None},
    "atomic": {"value": float("nan"), "relative_error": float("nan"), "correct": False},
    "shared": {"n": 0, "value": 0.0, "reference": 0.0, "relative_error": 0.0},
    "shuffle": {"n": 1, "gb_per_s": 4e-3, "percent_of_peak": 1e-4},
    "tree": {"dtype": "float16"},
}


def test_files_of_a_real_run_with_all_that_a_record_may_lack(page, context, monkeypatch, tmp_path):
    usual = fake.timed
    monkeypatch.setattr(fake, "timed", lambda rung: usual(rung, **REAL.get(rung.id, {})))
    text = page(simulated=False, drawn=True)
    parsed = Page(text)
    shown = {rung.id: parsed.cells[13 * i : 13 * i + 8] for i, rung in enumerate(fake.RUNGS.values()) if i < 2}
    assert shown["fast"] == ["fast", "–", "–", "–", "97", "–", "5.0e-04", "right"]
    assert "nan" in parsed.cells
    assert not [cell for cell in parsed.cells if "None" in cell]
    bandwidth, roofline = (ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)[:2])
    for picture in (bandwidth, roofline):
        texts = [element.text for element in picture.iter(f"{SVG}text")]
        assert "slow" in texts
        assert "fast" not in texts, "which was not timed"
    session = Session(context, simulated=False, note=None)
    for name in ("ladder.svg", "ladder.png"):
        ladder.Files(tmp_path / name, None).write(results(fake.timed), OPTIONS, session)
        assert (tmp_path / name).stat().st_size > 1000
    ladder.Files(None, tmp_path / "ladder.html").write(results(fake.timed), OPTIONS, session)
    assert fetched((tmp_path / "ladder.html").read_text(encoding="utf-8")) == []


def test_a_run_of_which_nothing_was_timed_still_has_its_page(page, monkeypatch):
    usual = fake.timed
    nothing = {"microseconds": None, "gb_per_s": None, "percent_of_peak": None}
    monkeypatch.setattr(fake, "timed", lambda rung: usual(rung, **nothing))
    assert [figure["id"] for figure in Page(page(simulated=False)).all("figure")[:2]] == [
        "picture-bandwidth",
        "picture-roofline",
    ]


@needs_browser
@pytest.mark.parametrize("simulated", [True, False])
def test_a_browser_shows_table_and_pictures(page, tmp_path, simulated):
    file, picture = tmp_path / "ladder.html", tmp_path / "shot.png"
    file.write_text(page(simulated=simulated, drawn=True), encoding="utf-8")
    parsed = Page(browser.run(file.as_uri(), tmp_path, "--dump-dom").stdout)
    assert len(parsed.all("figure")) == 2 + 3 + len(fake.RUNGS) - 1
    assert parsed.cells[0] == "slow"
    assert "fast" in [text for path, text in parsed.texts if path[-1:] == ("text",)], "the picture's labels"
    browser.run(file.as_uri(), tmp_path, f"--screenshot={picture}", "--window-size=1200,1000")
    from matplotlib.image import imread

    pixels = imread(picture)[..., :3]
    blue = np.all(np.abs(pixels - np.array([0x3A, 0x7C, 0xA5]) / 255) < 0.02, axis=-1)
    assert blue.sum() > 500, "the bars of system A"
