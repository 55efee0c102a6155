"""Fresh processes find the byte code of all modules, so that what is timed is what an installed package takes."""

import subprocess
import sys
from pathlib import Path

from benchmarks.suites.cold import keeping

CACHED = "import os, json.tool as module; print(os.path.exists(module.__spec__.cached), module.__spec__.cached)"


def test_byte_code_is_kept_though_this_process_keeps_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    run = subprocess.run([sys.executable, "-c", CACHED], env=keeping(str(tmp_path)), capture_output=True, check=True)
    found, path = run.stdout.decode().split(maxsplit=1)
    assert found == "True"
    assert Path(path).is_relative_to(tmp_path)
