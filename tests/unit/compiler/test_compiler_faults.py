"""The cache and prebuilt kernels where any file operation fails, where signals arrive, and with forged entries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.files import fail_file_operations, forge_entries, open_descriptors

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX descriptors")


@pytest.mark.skipif(not open_descriptors(), reason="needs /proc")
def test_open_descriptors_are_seen() -> None:
    before = open_descriptors()
    with open(os.devnull, "rb"):
        assert len(open_descriptors()) == len(before) + 1
    assert open_descriptors() == before


@posix
@pytest.mark.slow
def test_every_file_operation_may_fail(tmp_path: Path, is_sample: bool) -> None:
    tally = fail_file_operations(tmp_path / "d", seed=2, count=150 if is_sample else None)
    tally.check()
    assert tally.tried >= (150 if is_sample else 400)
    assert 0 < tally.refused.total() < tally.tried / 10


@posix
@pytest.mark.slow
def test_some_file_operations_fail(tmp_path: Path) -> None:
    tally = fail_file_operations(tmp_path / "d", seed=1, count=50)
    tally.check()
    assert tally.tried == 50


@posix
@pytest.mark.slow
def test_forged_entries_are_compiled_anew(tmp_path: Path) -> None:
    tally = forge_entries(tmp_path, seed=1, count=300)
    tally.check()
    assert tally.refused.total() > 250
