"""The lowest versions of all that this library needs, on the oldest Python and on a new one: the unit tests pass."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = "error\nignore::DeprecationWarning:(typer|click|matplotlib|pyparsing)"
"""Old versions use what newer ones of their own needs call deprecated; our warnings are errors, as always."""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def interpreter_of(version):
    """Return a Python of this version that works: a shim of pyenv for one that is not chosen does not."""
    found = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for each in filter(None, found):
        probe = [each, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(probe, capture_output=True, text=True, check=False).stdout.strip() == version:
            return each
    pytest.skip(f"there is no Python {version}")


@pytest.fixture(scope="module")
def uv(tmp_path_factory):
    """Return uv, which finds the lowest versions, in an environment of its own."""
    place = tmp_path_factory.mktemp("uv")
    venv.create(place, with_pip=True)
    run(place / "bin" / "python", "-m", "pip", "install", "--quiet", "uv>=0.5")
    return place / "bin" / "uv"


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
@pytest.mark.skipif(sys.platform == "win32", reason="environments have other folders there")
@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_unit_tests_pass_with_the_lowest_versions(uv, tmp_path, version):
    place = tmp_path / "environment"
    run(uv, "venv", "--quiet", "--no-python-downloads", "--python", interpreter_of(version), place)
    # Of what is needed in turn, the newest: the lowest of that is for those to test who ask for it. Nothing but this
    # library is built, so that the lowest version is one that has wheels for this Python.
    lowest = ("--resolution", "lowest-direct", "--only-binary", ":all:", "--no-binary", "lowlevel-reduce")
    python = place / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--python", python, *lowest, "--editable", ".[cu12,test]", cwd=ROOT)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    options = ("-q", "-p", "no:cacheprovider", "--numprocesses", "auto", "-o", f"filterwarnings={OF_OTHERS}")
    run(python, "-m", "pytest", *options, "tests/unit", cwd=ROOT, env=clean)
