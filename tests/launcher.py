"""The example that launches kernels of the wheel without Python: compiled, where a compiler and the headers are."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from kept import DIRECTORY

EXAMPLE = Path(__file__).parents[1] / "examples" / "launch_from_wheel.cpp"


def compiled_example(folder: Path) -> Path:
    """Return the program of the example; skip the test, with the reason, where it cannot be compiled.

    It is kept by what it is made from, as kernels are: the compiler takes four seconds.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    packages = Path(sysconfig.get_paths()["purelib"])
    toolkits = [packages / "nvidia" / name / "include" for name in ("cu13", "cuda_runtime")]
    toolkits += [Path(os.environ.get("CUDA_PATH", "/usr/local/cuda")) / "include"]
    headers = [path for path in toolkits if (path / "cuda.h").is_file()][:1]
    headers += [path for path in [packages / "nlohmann_json" / "include"] if path.is_dir()]
    program = folder / "launch_from_wheel"
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    made_from = "\0".join(
        [version, *map(str, headers), *map(_state, headers), EXAMPLE.read_text(), Path(__file__).read_text()]
    )
    kept = DIRECTORY / "programs" / hashlib.sha256(made_from.encode()).hexdigest()
    if kept.exists():
        shutil.copy(kept, program)
        return program
    found = "#include <cuda.h>\n#include <lzma.h>\n#include <nlohmann/json.hpp>\n#include <openssl/sha.h>\n"
    includes = [f"-I{path}" for path in headers]
    command = [compiler, "-std=c++17", *includes, "-x", "c++", "-fsyntax-only", "-"]
    looked = subprocess.run(command, input=found, capture_output=True, text=True, check=False)
    if looked.returncode != 0:
        pytest.skip(f"a header that the example needs is missing: {looked.stderr.splitlines()[0]}")
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", *includes, str(EXAMPLE), "-o", str(program)]
    done = subprocess.run([*command, "-llzma", "-lcrypto", "-ldl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, kept.with_suffix(f".{os.getpid()}"))
    kept.with_suffix(f".{os.getpid()}").replace(kept)  # at once, since other processes may be reading
    return program


def _state(folder: Path) -> str:
    """Return what changes when another version of the headers is installed."""
    return str(folder.stat().st_mtime_ns)
