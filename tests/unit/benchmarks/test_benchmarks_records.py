"""Result files: what is appended is what is read, and what is malformed is refused. Nothing is measured."""

import pytest

from benchmarks.measure import records
from benchmarks.measure.figures import FileError, figure

FIRST = '{"format":2,"kind":"suites","conditions":{}}\n'


def test_what_is_appended_is_read_and_each_record_is_a_line(tmp_path):
    file = tmp_path / "x.jsonl"
    records.begin(file, "variants", {"device": "D"}, missing={})
    records.add(file, {"cell": "a", "entries": {"us": figure([1.5, 1.0, 2.0]), "µ": {"error": "no"}}}, {"cell": "b"})
    records.add(file, {"conditions": {"cub": "3.0"}})
    timed = figure([4.0]) | {"timed": "between events"}
    records.add(file, {"cell": "c", "entries": {"us": timed}})
    assert file.read_text(encoding="utf-8").splitlines()[1:3] == [
        '{"cell":"a","entries":{"us":[1.5,66.67,3],"µ":{"error":"no"}}}', '{"cell":"b"}',
    ]  # fmt: skip
    found = records.read(file, "variants")
    assert (found.file, found.conditions, found.facts) == ("x.jsonl", {"device": "D", "cub": "3.0"}, {"missing": {}})
    first, *others = found.records
    assert first["entries"] == {"us": {"us": 1.5, "spread_percent": 66.67, "rounds": 3}, "µ": {"error": "no"}}
    assert others == [{"cell": "b"}, {"cell": "c", "entries": {"us": timed}}]


def test_a_file_begins_anew(tmp_path):
    file = tmp_path / "x.jsonl"
    for device in ("A", "B"):
        records.begin(file, "tune", {"device": device})
        records.add(file, {"of": device})
    assert records.read(file, "tune").records == [{"of": "B"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.jsonl, line 1 is no JSON"),
        (FIRST + '{"cell": "a"}\n{"cell": "b', "x.jsonl, line 3 is no JSON"),
        (FIRST + "[]\n", "line 2 is no JSON object"),
        (FIRST.replace("2", "1"), "does not begin as a file of suites in format 2"),
        (FIRST.replace("suites", "ladder"), "does not begin as a file of suites in format 2"),
        ('{"format":2,"kind":"suites"}\n', "has no conditions"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, text, message):
    file = tmp_path / "x.jsonl"
    with pytest.raises(FileError, match="cannot be read"):
        records.read(file, "suites")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=message):
        records.read(file, "suites")
