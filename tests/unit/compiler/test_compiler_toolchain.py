"""The record of which NVRTC is here: what keeps it valid, and what makes it void."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lowlevel_reduce.compiler import nvrtc, toolchain
from lowlevel_reduce.compiler.cache import DiskCache
from lowlevel_reduce.compiler.toolchain import Toolchain


class FakeNvrtc:
    """Stands for the library of a process: counts how often it is loaded."""

    def __init__(self, path: Path) -> None:
        self.library = nvrtc.Library((12, 9), str(path), True)
        self.loads = 0
        self.loaded = False

    def load(self) -> nvrtc.Library:
        self.loads += 1
        return self.library


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvrtc:
    file = tmp_path / "lib" / "libnvrtc.so.12"
    file.parent.mkdir()
    file.write_bytes(bytes(100))
    fake = FakeNvrtc(file)
    monkeypatch.setattr(nvrtc, "load", fake.load)
    monkeypatch.setattr(nvrtc, "is_loaded", lambda: fake.loaded)
    return fake


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"))


def test_the_second_process_does_not_load(fake: FakeNvrtc, cache: DiskCache) -> None:
    assert toolchain.identify(cache) == Toolchain((12, 9), 100)
    assert toolchain.identify(cache) == Toolchain((12, 9), 100)
    assert fake.loads == 1


def test_a_loaded_library_is_asked(fake: FakeNvrtc, cache: DiskCache) -> None:
    toolchain.identify(cache)
    fake.loaded = True
    fake.library = nvrtc.Library((13, 0), None, False)
    assert toolchain.identify(cache) == Toolchain((13, 0), 0)


def test_without_a_cache_it_is_always_asked(fake: FakeNvrtc) -> None:
    toolchain.identify(None)
    toolchain.identify(None)
    assert fake.loads == 2


def test_what_other_code_had_loaded_is_not_recorded(fake: FakeNvrtc, cache: DiskCache) -> None:
    fake.library = nvrtc.Library((12, 9), fake.library.path, False)
    toolchain.identify(cache)
    assert toolchain.recall(cache) is None


def change_mtime(file: Path, _: pytest.MonkeyPatch) -> None:
    os.utime(file, ns=(1, 1))


def change_size(file: Path, _: pytest.MonkeyPatch) -> None:
    info = file.stat()
    file.write_bytes(bytes(101))
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


def remove(file: Path, _: pytest.MonkeyPatch) -> None:
    file.unlink()


def install_beside(file: Path, _: pytest.MonkeyPatch) -> None:
    (file.parent / "libnvrtc.so.13").write_bytes(b"")
    os.utime(file.parent, ns=(2, 2))  # clocks of file systems may be too coarse to notice within a test


def set_library_path(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")


def set_library_path_that_is_no_text(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", os.fsdecode(b"/caf\xe9/lib"))


def set_conda(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_PREFIX", "/elsewhere")


def install_distribution(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = file.parent.parent / "site-packages"
    (site / "nvidia_cuda_nvrtc-13.5.37.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(site))


def rewrite_linker_cache(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_LINKER_CACHE", str(file))


CHANGES = [
    change_mtime,
    change_size,
    remove,
    install_beside,
    set_library_path,
    set_library_path_that_is_no_text,
    set_conda,
    install_distribution,
    rewrite_linker_cache,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_voids_the_record(
    fake: FakeNvrtc, cache: DiskCache, change: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolchain.identify(cache)
    assert toolchain.recall(cache) is not None
    change(tmp_path / "lib" / "libnvrtc.so.12", monkeypatch)
    assert toolchain.recall(cache) is None
    fake.library = nvrtc.Library((13, 5), fake.library.path, True)
    assert toolchain.identify(cache).version == (13, 5)


def test_an_upgrade_of_a_distribution_changes_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = {toolchain.fingerprint()}
    for name in ("cuda_bindings-98.0.dist-info", "cuda_bindings-99.0.dist-info", "Cuda_Pathfinder-99.egg-info"):
        (tmp_path / name).mkdir()
        seen.add(toolchain.fingerprint())
    (tmp_path / "unrelated-1.dist-info").mkdir()
    seen.add(toolchain.fingerprint())
    assert len(seen) == 4


def test_metadata_directories_say_what_importlib_metadata_says() -> None:
    from importlib import metadata

    found = {name.rpartition(".")[0].lower().replace("-", "_", 1) for name in toolchain._distributions(sys.path)}
    for name in ("cuda-bindings", "cuda-pathfinder"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        assert f"{name.replace('-', '_')}_{version}" in {item.replace("-", "_") for item in found}


@pytest.mark.parametrize("metadata", [{}, {"file": 3}, {"file": {"path": 3}}, {"file": None, "version": [1, 2]}])
def test_a_record_of_another_shape_is_none(fake: FakeNvrtc, cache: DiskCache, metadata: dict[str, Any]) -> None:
    cache.store(f"toolchain-{toolchain.fingerprint()}.llr", metadata, b"")
    assert toolchain.identify(cache) == Toolchain((12, 9), 100)


def test_a_read_only_cache_does_not_stop_the_question(fake: FakeNvrtc, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert toolchain.identify(DiskCache(str(tmp_path / "file" / "cache"))) == Toolchain((12, 9), 100)


def test_importing_the_compiler_layer_is_cheap() -> None:
    script = (
        "import importlib.util, sys, types\n"
        "before = set(sys.modules)  # some distributions of cuda-bindings import it when Python starts\n"
        "package = types.ModuleType('lowlevel_reduce')  # without what the package itself imports\n"
        "package.__path__ = importlib.util.find_spec('lowlevel_reduce').submodule_search_locations\n"
        "sys.modules['lowlevel_reduce'] = package\n"
        "import lowlevel_reduce.compiler\n"
        "heavy = {'cuda.bindings', 'cuda.pathfinder', 'numpy', 'platformdirs', 'importlib.metadata', 'ctypes',\n"
        "         'concurrent.futures', 'subprocess', 'tempfile', 'lowlevel_reduce.driver', 'lowlevel_reduce.dtypes'}\n"
        "found = heavy & set(sys.modules) - before\n"
        "sys.exit(repr(found) if found else 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
