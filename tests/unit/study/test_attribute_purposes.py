"""What attributes are for and what they did: one of each, and every figure stands in the committed record."""

import json
import re
from pathlib import Path

import pytest

from lowlevel_reduce.study.attributes import ATTRIBUTES
from lowlevel_reduce.study.purposes import MEASURED, PURPOSES

RECORD = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "2026-11-22-h200-attributes-two-gpus.jsonl"


def test_every_attribute_has_both():
    numbers = [attribute.id for attribute in ATTRIBUTES]
    assert list(PURPOSES) == list(MEASURED) == numbers


@pytest.mark.parametrize("number", MEASURED)
def test_what_was_measured_is_in_the_record(number):
    lines = map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())
    observed = {line["id"]: line["observed"] for line in lines if "id" in line}[number]
    for part in re.split(r", (?!\d)", MEASURED[number]):
        figures = re.findall(r"\d+(?:\.\d+)?", part)
        assert figures or part in observed or any(word in observed for word in part.split(": ")), part
        for figure in figures:
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", observed), f"{figure} of {part!r}"
