"""The lesson's diagrams and colours: computed from what they show, and every line and figure in its place."""

import html
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from lowlevel_reduce.cli import diagrams
from lowlevel_reduce.cli.highlighting import marked_html, style_sheet
from lowlevel_reduce.ladder import RUNGS, rung_prose, source_diff
from lowlevel_reduce.ladder.plans import Production
from lowlevel_reduce.simulator.machine.memory.traffic import wavefronts

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("stride", [0, 1, 2, 3, 8, 32, 33])
def test_banks_are_those_that_the_simulator_counts(stride):
    counts = diagrams.bank_counts(lambda lane: stride * lane)
    lanes = np.arange(32)
    _, passes, _ = wavefronts(lanes, 4 * stride * lanes, 4)
    assert max(counts) == passes
    assert sum(counts) == len({stride * lane for lane in range(32)})


def test_pictures_say_what_they_show():
    banks, divergence, cluster = (ET.fromstring(each()) for each in
                                  (diagrams.banks, diagrams.divergence, diagrams.clusters))  # fmt: skip
    texts = [text.text for text in banks.iter(f"{SPACE}text")]
    assert "s[t]: neighbours: 1 pass" in texts
    assert "tile[t][0] of 32 x 32: 32 passes" in texts
    assert "tile[t][0] of 32 x 33: 1 pass" in texts
    steps = [text.text for text in divergence.iter(f"{SPACE}text")]
    assert [int(step.split(": ")[1][0]) for step in steps] == [2, 2, 2, 2, 2, 1, 0, 1, 1, 1, 1, 1]
    assert len(list(divergence.iter(f"{SPACE}rect"))) == 12 * 64
    assert len(list(cluster.iter(f"{SPACE}rect"))) == 4


def test_a_rungs_tree_is_drawn_where_it_can_be_told():
    assert diagrams.tree(RUNGS["race"]) is None
    assert diagrams.tree(RUNGS["inner_axis"]) is None


def text_of(line):
    return html.unescape(re.sub(r"<[^>]*>", "", line))


@pytest.mark.parametrize("name", ["v1_shared_interleaved", "v7_cluster", "kahan", "tcu_reduce16", "modulo_and"])
def test_every_line_keeps_its_text_and_its_marker(name):
    lines = source_diff(RUNGS[name])
    marked = marked_html(lines)
    assert [(marker, text_of(line)) for marker, line in marked] == lines
    assert any('<span class="' in line for _, line in marked)
    assert all(line.count("<span") == line.count("</span>") for _, line in marked)


def test_blank_lines_and_comments_over_several_lines():
    lines = [
        (" ", ""),
        ("-", "/* old"),
        ("+", "/* new"),
        (" ", "   < & */ int x;"),
        (" ", ""),
        ("-", "gone */"),
        (" ", ""),
    ]
    marked = marked_html(lines)
    assert [(marker, text_of(line)) for marker, line in marked] == lines
    assert '<span class="cm">' in marked[3][1], "a comment that began in the line before"
    assert marked_html([]) == []


def test_colours_are_for_one_element_in_both_schemes():
    sheet = style_sheet("pre.source")
    light, dark = sheet.split("@media (prefers-color-scheme: dark)")
    assert "pre.source .k " in light
    assert "pre.source .k " in dark
    assert light.split("}")[0] != dark.split("}")[0]
    assert all(line.startswith("pre.source .") for line in light.strip().split("\n"))
    assert "background" not in sheet


@pytest.mark.parametrize("rung", [r for r in RUNGS.values() if not isinstance(r.plan, Production)], ids=lambda r: r.id)
def test_the_prose_of_a_rung_is_the_head_of_its_file(rung):
    prose = rung_prose(rung)
    headings = [heading for heading, _ in prose]
    assert headings[0] == ""
    assert {"Changes", "Costs", "Next"} <= set(headings)
    head = rung.source.read_text(encoding="utf-8").split("\n")
    words = " ".join(line.removeprefix("//").strip() for line in head if line.startswith("//"))
    assert all(said[1:] in words for _, said in prose)
    assert not any(line.startswith("//") for _, line in source_diff(rung)[:1])
