"""The wheel of kernels: built, installed, and used by processes without a compiler and by one without Python."""

import errno
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from launcher import compiled_example

import lowlevel_reduce as lr
from lowlevel_reduce.compiler import Program, installed_kernels, prebuilt_at, stored_in
from lowlevel_reduce.compiler.images import cubin_kernels
from lowlevel_reduce.compiler.installed import PACKAGE
from lowlevel_reduce.compiler.pack import Pack
from lowlevel_reduce.kernel_wheel import building
from lowlevel_reduce.kernel_wheel.building import build_wheel
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.family import family, family_of
from lowlevel_reduce.strategy.stubs import OPTIONS, KernelSource

SOME = 2
"""Kernels of each family that these tests compile: that of a block and its twin."""

PAIRS = (("sum", "float32"), ("max", "float16"), ("mean", "float32"))


@pytest.fixture(scope="module")
def built(tmp_path_factory, kept_kernels):
    """The report of a small wheel, and the folder that it was unpacked to as pip does."""
    root = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "family", lambda *arguments: family(*arguments)[:SOME])
        seen = []
        report = build_wheel(
            root / "dist",
            ["sm_90", "sm_80", "sm_90"],
            [*PAIRS, PAIRS[0]],
            kernels_in=root / "kernels",
            each=seen.append,
        )
        assert seen == [6 * SOME] * 6 * SOME
    with zipfile.ZipFile(report.wheel) as archive:
        archive.extractall(root / "site")
    return report, root / "site"


def test_it_is_one_pure_wheel_of_the_librarys_version(built):
    report, site = built
    assert report.wheel.name == f"{PACKAGE}-{lr.__version__}-py3-none-any.whl"
    assert report.size_bytes == report.wheel.stat().st_size
    assert report.kernels == {"sm_90": 3 * SOME, "sm_80": 3 * SOME}
    (information,) = site.glob("*.dist-info")
    assert "Root-Is-Purelib: true" in (information / "WHEEL").read_text()
    files = {path.name for path in (site / PACKAGE).iterdir()}
    assert files == {"__init__.py", *(f"{each}.{kind}" for each in report.kernels for kind in ("pack", "json"))}
    for name, size in report.pack_bytes.items():
        assert (site / PACKAGE / f"{name}.pack").stat().st_size == size


def test_a_process_takes_its_kernels_from_it_and_loads_no_compiler(built, tmp_path):
    _, site = built
    script = f"""
import sys
from lowlevel_reduce.compiler import nvrtc
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.family import family_of
for op, dtype in {PAIRS}:
    for source in family_of(op, dtype=dtype, compute_capability=(9, 0))[:{SOME}]:
        found = compile_kernel(source, "sm_90")
        assert found.from_cache and found.kernels[source.entry].registers > 0
        assert found.data[:4] == b"\\x7fELF"
print("cuda.bindings.nvrtc" in sys.modules, nvrtc.is_loaded(), "lowlevel_reduce.compiler.preprocessing" in sys.modules)
"""
    places = os.pathsep.join([str(Path(lr.__file__).parents[1]), str(site)])
    cache = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": places, "LOWLEVEL_REDUCE_CACHE_DIR": str(cache)}
    environment.pop("LOWLEVEL_REDUCE_PREBUILT_DIR", None)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout.split(), done.stderr) == (["False"] * 3, "")
    assert not cache.exists()


def test_the_manifest_lists_every_kernel_of_the_pack(built):
    _, site = built
    for architecture, capability in (("sm_90", (9, 0)), ("sm_80", (8, 0))):
        manifest = json.loads((site / PACKAGE / f"{architecture}.json").read_text())
        pack = Pack(str(site / PACKAGE / manifest["pack"]))
        pack.verify()
        assert (manifest["architecture"], manifest["version"]) == (architecture, lr.__version__)
        names = [
            source.entry
            for op, dtype in PAIRS
            for source in family_of(op, dtype=dtype, compute_capability=capability)[:SOME]
        ]
        assert [kernel["entry"] for kernel in manifest["kernels"]] == names
        assert len(pack) == len(names)


def test_families_that_resemble_each_other_share_a_block_by_turns(built):
    _, site = built
    manifest = json.loads((site / PACKAGE / "sm_90.json").read_text())
    places = {}
    for kernel in manifest["kernels"]:
        places.setdefault(kernel["operator"], []).append((kernel["block"], kernel["offset"]))
    by_turns = [place for pair in zip(places["sum"], places["mean"], strict=True) for place in pair]
    assert by_turns == sorted(by_turns)
    assert len({block for block, _ in by_turns}) == 1
    assert {block for block, _ in places["max"]}.isdisjoint(block for block, _ in by_turns)


def test_the_manifest_says_where_each_cubin_is(built):
    _, site = built
    manifest = json.loads((site / PACKAGE / "sm_90.json").read_text())
    data = (site / PACKAGE / manifest["pack"]).read_bytes()
    for kernel in manifest["kernels"]:
        block = manifest["blocks"][kernel["block"]]
        unpacked = lzma.decompress(data[block["offset"] : block["offset"] + block["size"]])
        assert len(unpacked) == block["unpacked"]
        cubin = unpacked[kernel["offset"] : kernel["offset"] + kernel["size"]]
        assert cubin[:4] == b"\x7fELF"
        assert cubin_kernels(cubin) == (kernel["entry"],)
        assert hashlib.sha256(cubin).hexdigest() == kernel["sha256"]


def test_what_was_compiled_is_taken_again(built, tmp_path, monkeypatch):
    report, _ = built
    monkeypatch.setattr(building, "family", lambda *arguments: family(*arguments)[:SOME])
    monkeypatch.setattr("lowlevel_reduce.compiler.nvrtc.compile_source", lambda *_, **__: pytest.fail("compiled again"))
    kernels = report.wheel.parents[1] / "kernels"
    again = build_wheel(tmp_path, ["sm_90", "sm_80"], PAIRS, kernels_in=kernels)
    assert again.wheel.read_bytes() == report.wheel.read_bytes()


def test_an_ignore_file_above_the_build_takes_nothing_out(built, tmp_path, monkeypatch):
    report, _ = built
    monkeypatch.setattr(building, "family", lambda *arguments: family(*arguments)[:SOME])
    (tmp_path / ".gitignore").write_text("*.pack\n*.json\n")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    kernels = report.wheel.parents[1] / "kernels"
    again = build_wheel(tmp_path / "dist", ["sm_90", "sm_80"], PAIRS, kernels_in=kernels)
    assert again.wheel.read_bytes() == report.wheel.read_bytes()


def test_a_full_disk_leaves_the_wheel_that_was_there(built, tmp_path, monkeypatch):
    report, _ = built
    monkeypatch.setattr(building, "family", lambda *arguments: family(*arguments)[:SOME])
    shutil.copy(report.wheel, tmp_path)

    def write(descriptor, data):
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lowlevel_reduce.compiler.files._write", write)
    with pytest.raises(OSError, match="No space left"):
        build_wheel(tmp_path, ["sm_90"], PAIRS[:1], kernels_in=report.wheel.parents[1] / "kernels")
    (wheel,) = tmp_path.iterdir()
    assert wheel.read_bytes() == report.wheel.read_bytes()


HUNGRY = """\
extern "C" __global__ void __launch_bounds__(1024, {blocks}) sum_float32_float64_float32_block(const float* x, float* y)
{{
    float held[44];
    for (int i = 0; i < 44; ++i) held[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 44; ++i) y[i * 1024 + threadIdx.x] = held[43 - i];
}}
"""
"""A kernel that needs more registers than it has with two blocks on a multiprocessor, and fewer than with one."""


def test_an_attempt_that_spills_is_not_in_it_but_its_name(tmp_path, monkeypatch):
    first, second = (HUNGRY.format(blocks=blocks) for blocks in (2, 1))
    source = KernelSource("sum_float32_float64_float32_block", first, (second,))
    monkeypatch.setattr(building, "family", lambda *_: (source,))
    report = build_wheel(tmp_path, ["sm_90"], [("sum", "float32")], kernels_in=tmp_path / "kernels")
    with zipfile.ZipFile(report.wheel) as archive:
        archive.extractall(tmp_path / "site")
    attempts = prebuilt_at(str(tmp_path / "kernels"))
    assert stored_in(attempts, Program(source.entry, first, options=OPTIONS), "sm_90").kernels[source.entry][3] > 0
    pack = Pack(str(tmp_path / "site" / PACKAGE / "sm_90.pack"))
    names = [entry.name for entry in attempts.entries()]
    assert (len(names), len(pack), [pack.is_spilled(name) for name in names].count(True)) == (2, 1, 1)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    monkeypatch.setattr("lowlevel_reduce.compiler.nvrtc.compile_source", lambda *_, **__: pytest.fail("compiled again"))
    installed_kernels.cache_clear()
    try:
        found = compile_kernel(source, "sm_90")
    finally:
        installed_kernels.cache_clear()
        sys.modules.pop(PACKAGE, None)
    assert (found.program.source, found.kernels[source.entry].spill_store_bytes) == (second, 0)


@pytest.mark.parametrize(
    ("architectures", "choice", "error", "words"),
    [
        ([], [("sum", "float32")], ValueError, "an architecture and an operator"),
        (["sm_90"], [], ValueError, "an architecture and an operator"),
        (["sm_70"], [("sum", "float32")], lr.UnsupportedError, "7.5 or newer"),
        (["sm_90"], [("max", "complex64")], lr.UnsupportedError, "complex"),
    ],
)
def test_what_makes_no_wheel_is_refused(architectures, choice, error, words, tmp_path):
    with pytest.raises(error, match=words):
        build_wheel(tmp_path / "dist", architectures, choice)
    assert not (tmp_path / "dist").exists()


def test_a_program_without_python_reads_every_kernel(built, tmp_path):
    _, site = built
    program = compiled_example(tmp_path)
    done = subprocess.run([program, site / PACKAGE, "--list"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{6 * SOME} kernels, and every digest matches\n")
    shutil.copytree(site / PACKAGE, tmp_path / "altered")
    pack = tmp_path / "altered" / "sm_90.pack"
    data = bytearray(pack.read_bytes())
    data[-200] ^= 0xFF
    pack.write_bytes(data)
    done = subprocess.run([program, tmp_path / "altered", "--list"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unpacked" in done.stderr or "digest" in done.stderr
