"""The wheel, installed into an empty environment away from the checkout, compiles the sources that it ships."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, sys
from lowlevel_reduce.compiler import Program, compile_program, source_root
root = source_root()
headers = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.cuh"))
source = f'#include "{headers[0]}"\\n' if headers else ""
cubin = compile_program(Program("wheel", source + 'extern "C" __global__ void k(int* x) { *x = 1; }\\n'), "sm_90")
print(json.dumps({"root": str(root), "headers": headers, "names": cubin.names, "version": cubin.nvrtc_version}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (CHECKOUT / "pyproject.toml").is_file():
        pytest.skip("not a checkout")
    # A copy: building must not leave files in the checkout, nor find any that only this checkout has.
    copy = tmp_path_factory.mktemp("wheel") / "tree"
    copy.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("lowlevel_reduce", "cuda_src"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (CHECKOUT / name).is_file():
            shutil.copy(CHECKOUT / name, copy / name)
        else:
            (copy / name).write_text(f"{name}\n")
    out = copy.parent / "dist"
    if importlib.util.find_spec("hatchling"):
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out), cwd=copy)
    else:  # pip fetches it
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), ".", cwd=copy)
    (built,) = out.glob("*.whl")
    return built


def run(*command: str, cwd: Path, **variables: str) -> str:
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    result = subprocess.run(
        command, cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, timeout=900, check=False
    )
    assert result.returncode == 0, f"{command} failed:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def test_the_wheel_holds_the_sources(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    for directory, prefix in (("cuda_src", "lowlevel_reduce/"), ("lowlevel_reduce", "")):
        for path in (CHECKOUT / directory).rglob("*"):
            if path.suffix in {".cuh", ".cu", ".py", ".typed", ".j2"}:
                assert prefix + path.relative_to(CHECKOUT).as_posix() in shipped


def test_the_installed_wheel_compiles_what_it_ships(
    wheel: Path, tmp_path: Path, nvrtc_version: tuple[int, int], cache_directory: Path
) -> None:
    environment = tmp_path / "environment"
    venv.create(environment)  # without a pip of its own, which takes four seconds: this environment's installs there
    python = next(
        path for path in (environment / "bin" / "python", environment / "Scripts" / "python.exe") if path.exists()
    )
    extra = f"cu{nvrtc_version[0]}"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    run(*pip, "install", "--quiet", f"{wheel}[{extra}]", cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    said = json.loads(run(str(python), "-W", "error", "-c", SCRIPT, cwd=elsewhere))
    root = Path(said["root"])
    assert root.is_relative_to(environment.resolve())
    assert root.parts[-3:] == ("site-packages", "lowlevel_reduce", "cuda_src")
    assert said["names"] == ["k"]
    assert said["version"][0] == nvrtc_version[0]
    assert said["headers"] == sorted(
        path.relative_to(CHECKOUT / "cuda_src").as_posix() for path in (CHECKOUT / "cuda_src").rglob("*.cuh")
    )
