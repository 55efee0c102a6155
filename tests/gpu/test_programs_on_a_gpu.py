"""The programs of cuda_src/standalone on a GPU: compiled by nvcc, they end well and print what their sources print."""

import re
import shutil
import subprocess

import pytest

from lowlevel_reduce import Device, driver
from lowlevel_reduce.compiler import source_root
from lowlevel_reduce.driver import binding

# What each prints once for every kernel, and how often.
PRINTED = {
    "a": (r"^\| v\d \|.*\| right \|$", 8),
    "b": (r"^  (?:atomic|shared|shuffle) +[\d.]+(?: ms)?$", 9),
    "c": (r"^\w+ +throughput .*\(right\)$", 11),
    "d": (r"^\| .* \| +[\d.]+ us \| +[\d.]+ GB/s \|$", 4),
    "e": (r"^[\w, ]+ result .* ms", 11),
}


@pytest.mark.parametrize("letter", PRINTED)
def test_it_prints_what_its_source_prints(tmp_path, letter):
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc, which compiles the program")
    with binding.use("cuda"):
        if driver.why_unavailable() is not None:
            pytest.skip("there is no GPU, and the simulator runs no programs of nvcc")
        architecture = Device(0).architecture
    program = tmp_path / letter
    source = source_root() / "standalone" / f"{letter}.cu"
    command = ["nvcc", "-O3", "-std=c++17", f"-arch={architecture}", "-o", str(program), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    arguments = {"a": ["1000003"], "b": ["1000003"], "c": ["1000003"], "d": ["256"], "e": ["100003"]}[letter]
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pattern, times = PRINTED[letter]
    assert len(re.findall(pattern, done.stdout, re.MULTILINE)) == times, done.stdout
