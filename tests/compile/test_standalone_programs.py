"""The programs of cuda_src/standalone: nvcc compiles them without a warning, where there is an nvcc."""

import re
import shutil
import subprocess

import pytest

from lowlevel_reduce.compiler import source_root

FOLDER = source_root() / "standalone"
programs = pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.cu")))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc, which compiles these programs for a host")
@programs
def test_nvcc_compiles_it(tmp_path, name):
    command = [
        "nvcc",
        "-std=c++17",
        "-arch=sm_90",
        "-Werror=all-warnings",
        "-c",
        "-o",
        str(tmp_path / "o"),
        str(FOLDER / name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@programs
def test_it_runs_the_ladders_own_kernels_and_says_how_to_compile_it(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert "__global__" not in text, "a kernel is written once, in the ladder"
    included = re.findall(r'#include "\.\./(ladder/\w+\.cu)"', text)
    assert included
    assert all((source_root() / path).is_file() for path in included)
    assert text.splitlines()[1].startswith("// nvcc ")
    letter = name.removesuffix(".cu").upper()
    assert text.startswith(f"// System {letter} by itself: ")
