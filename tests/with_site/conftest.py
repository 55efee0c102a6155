"""The site as make docs makes it, in a temporary folder, and a server for a browser; mkdocs must be installed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import served

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; a warning is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where a browser finds the site."""
    with served(site) as found:
        yield found
