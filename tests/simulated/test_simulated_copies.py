"""The benchmark of copies runs, brings back what it sent, and measures nothing on a simulated device."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from benchmarks.profile import copies


def test_all_is_timed_and_right(stream):
    found = copies.rows(stream, 5000)
    assert [row["name"] for row in found] == list(copies.NAMES)
    assert {row["n"] for row in found} == {5000}
    assert all(row["us"] > 0 for row in found)


def test_what_does_not_come_back_is_an_error(stream, monkeypatch):
    monkeypatch.setattr(lr.tree, "reduce", lambda x: np.float32(0))
    with pytest.raises(lr.ReduceError, match="5000 elements"):
        copies.rows(stream, 5000)


def test_a_simulated_device_is_refused(driver, tmp_path, capsys):
    assert copies.main(["--json", str(tmp_path / "x.jsonl")]) == 2
    assert "tells no time" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
