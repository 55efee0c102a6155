"""These tests need NVRTC and no GPU; where NVRTC is missing they are skipped and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowlevel_reduce.compiler import version
from lowlevel_reduce.errors import NoCompilerError


@pytest.fixture(scope="session")
def nvrtc_version() -> tuple[int, int]:
    try:
        return version()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _needs_nvrtc(nvrtc_version: tuple[int, int]) -> None:
    """Every test of this directory."""


@pytest.fixture(autouse=True)
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, never the user's."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(directory))
    return directory
