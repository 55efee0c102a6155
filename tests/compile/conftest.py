"""These tests need NVRTC and no GPU; where NVRTC is missing they are skipped and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowlevel_reduce.compiler import version


@pytest.fixture(autouse=True)
def _compiled(kept_kernels: None) -> None:
    """Every test of this directory compiles, or takes what was compiled before."""


@pytest.fixture(scope="session")
def nvrtc_version(kept_kernels: None) -> tuple[int, int]:
    return version()


@pytest.fixture
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for tests of compiling and caching."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(directory))
    return directory
