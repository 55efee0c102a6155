"""The report of real rungs: what it says, and how a browser shows it, narrow and wide, light and dark."""

import re
from dataclasses import fields

import numpy as np
import pytest
from browser import look, needs_browser, run, served
from typer.testing import CliRunner

from lowlevel_reduce.cli import app
from lowlevel_reduce.simulator.machine import Counters

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")

CHOSEN = (
    "v0_atomic", "v1_shared_interleaved", "v2_shared_sequential", "v7_cluster", "atomic", "shuffle", "permuted_axis",
    "race", "transpose_conflicting",
)  # fmt: skip
"""Of every kind: sums of both systems that say most, one with clusters, rows, one that is stopped, and no sum."""


def written(file, rungs):
    command = ["ladder", "--device", "simulator", "--rungs", ",".join(rungs), "--n", "4099", "--report", str(file)]
    done = CliRunner().invoke(app.app, command)
    assert done.exit_code == 0, done.stderr
    return file


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(tmp_path_factory.mktemp("report") / "ladder.html", CHOSEN)


def test_the_report_of_real_rungs(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", text)
    for name in ("v0_atomic", "v2_shared_sequential", "shuffle"):
        assert f'<section id="rung-{name}">' in text
        assert re.search(rf'<td class="left">{name}</td><td>\d+</td><td>\d+</td><td>0</td>', text), "its resources"
    assert "what is not in v1_shared_interleaved is marked" in text
    assert '<span class="new">' in text
    assert "<code>t % (2 * s) == 0</code> keeps every second" in text
    assert "<title>The ladder on a simulated NVIDIA H200</title>" in text
    assert "System E: a course&#39;s ladder</h2>" in text
    assert "<cite>Cuda Reduce优化笔记</cite>" not in text, "no rung of system C was asked for"
    assert "lesson 10</cite>; its GPU: Tesla T4" in text
    assert "CPU reference (double)" in text
    assert "<td>4,099</td>" in text, "the atomics of v0"


def test_every_counter_leads_to_what_it_means(tmp_path):
    text = written(tmp_path / "ladder.html", CHOSEN[:2]).read_text(encoding="utf-8")
    links, anchors = re.findall(r'href="#([\w-]+)"', text), set(re.findall(r'\bid="([\w-]+)"', text))
    assert set(links) <= anchors
    linked = {link.removeprefix("counter-") for link in links if link.startswith("counter-")}
    assert linked == {entry.name for entry in fields(Counters)}
    assert "Accesses of warps to shared memory, the passes over its 32 banks that they take" in text


def test_the_report_shows_machine_code_where_there_is_a_disassembler(page):
    from cuda import pathfinder

    finder = getattr(pathfinder, "find_nvidia_binary_utility", lambda _: None)
    if finder("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    text = page.read_text(encoding="utf-8")
    assert "Machine code of v0_atomic: all of it, since it has no loop" in text
    assert "Machine code of v2_shared_sequential: its loop" in text
    assert "LDS" in text
    assert "REDG" in text or "RED.E" in text


@needs_browser
def test_a_browser_opens_the_report(page, tmp_path):
    shown = run(page.as_uri(), tmp_path, "--dump-dom").stdout
    trees = len(CHOSEN) - 3  # none of the race, of rows and of the transpose
    assert shown.count("<figure") == shown.count("<svg") == 2 + 3 + trees, "pictures, diagrams, trees"
    assert shown.count("<section") == len(CHOSEN)
    assert "sectors per load request" in shown


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_a_browser_shows_the_report_without_errors_or_sideways_scrolling(page, tmp_path, width, dark):
    from matplotlib.image import imread

    with served(page.parent) as address:
        shown = look(address, page.parent, page.name, tmp_path, width=width, dark=dark, height=1500)
    assert shown.wrong == ""
    assert shown.width == width
    assert shown.over <= 0, f"{shown.over} pixels too wide"
    assert shown.ground == ((20, 23, 26) if dark else (255, 255, 255))
    pixels = imread(shown.picture)[..., :3]
    assert (pixels.mean() < 0.3) == dark
    ink = np.abs(pixels - pixels[0, 0]).max(axis=-1) > 0.5
    assert ink.mean() > 0.01, "its text stands out"
    blue = np.all(np.abs(pixels - np.array([0x3A, 0x7C, 0xA5]) / 255) < 0.02, axis=-1)
    assert blue.sum() > 300, "the bars of system A"


@needs_browser
def test_a_page_that_is_wrong_is_noticed(tmp_path):
    """The browser's report is not empty by itself: each fault of a page is in it."""
    page = "<!DOCTYPE html><html><head></head><body>{}</body></html>"
    (tmp_path / "right.html").write_text(page.format("<p>well</p>"))
    script = "<script>console.error('said'); Promise.reject('kept'); throw Error('thrown')</script>"
    wide = "<div style='width: 700px'>wide</div><img src='missing.png'>"
    (tmp_path / "wrong.html").write_text(page.format(wide + script))
    with served(tmp_path) as address:
        right = look(address, tmp_path, "right.html", tmp_path, width=360, dark=True)
        wrong = look(address, tmp_path, "wrong.html", tmp_path, width=360, dark=False)
    assert (right.wrong, right.over, right.dark, right.width) == ("", 0, True, 360)
    assert wrong.over > 300
    assert not wrong.dark
    for fault in ("missing.png", "said", "kept", "thrown"):
        assert fault in wrong.wrong
    assert not list(tmp_path.glob("probe-*")) + list(tmp_path.glob("frame-*"))
