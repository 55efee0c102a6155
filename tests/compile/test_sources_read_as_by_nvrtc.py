"""NVRTC opens what the reader of the sources says that it could open, and nothing of what the reader passes over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from include_forms import OPENED, UNOPENED, filled

import lowlevel_reduce as lr
from lowlevel_reduce.compiler import nvrtc
from lowlevel_reduce.prebuilding import BuildTarget

KERNEL = 'extern "C" __global__ void k(int* x) { *x = 1; }\n'


def opened(forms: Mapping[str, str], directory: Path) -> set[str]:
    """Compile all forms as one text, each with a header of its own, and return those whose header NVRTC opened."""
    text = ""
    for k, form in enumerate(forms.values()):
        path = directory / f"header{k}.cuh"
        path.write_text(f"#define FOUNDn{k}_\n")
        text += filled(form, str(path), f"n{k}_") + f"#ifdef FOUNDn{k}_\n#warning opened {k}_\n#endif\n"
    _, log = nvrtc.compile_source("k", text + KERNEL, "sm_90", headers={}, output="ptx")
    names = list(forms)
    return {names[int(k)] for k in re.findall(r"opened (\d+)_", log)}


def test_nvrtc_opens_what_is_refused(tmp_path: Path) -> None:
    assert not OPENED.keys() - opened(OPENED, tmp_path)


def test_nvrtc_opens_nothing_of_what_is_not(tmp_path: Path) -> None:
    assert not opened(UNOPENED, tmp_path)


@pytest.mark.parametrize("include", ["#include <@>", "%:inc\\\nlude <@>", 'char a = \'"\', b[] = "/*";\n#include <@>'])
def test_a_header_outside_the_sources_never_makes_a_kernel_stale(
    include: str, tmp_path: Path, cache_directory: Path
) -> None:
    header = tmp_path / "scale.cuh"
    header.write_text("#define SCALE 2\n")
    own = lr.Operator(
        "scaled", map="x * SCALE", combine="a + b", identity="0.f", preamble=include.replace("@", str(header))
    )
    target = BuildTarget.of_architecture("sm_90")
    for into in (None, tmp_path / "prebuilt"):
        with pytest.raises(lr.CompileError, match="scale.cuh") as caught:
            lr.prebuild(own, dtype="float32", target=target, into=into)
        assert caught.value.file == "preamble of Operator 'scaled'"
        assert caught.value.line == include[: include.index("@")].replace("\\\n", "").count("\n") + 1
