"""What readies the compiler ahead of a first call: it does so where nothing is compiled, and nowhere else."""

import pytest

from lowlevel_reduce.calls import ahead
from lowlevel_reduce.compiler import cache, nvrtc, readiness, sources
from lowlevel_reduce.compiler.cache import DiskCache
from lowlevel_reduce.errors import CacheError

SOURCE = '#include "operators.cuh"\n'
NAME = "0" * 64 + ".llr"


@pytest.fixture
def directory(monkeypatch, tmp_path):
    """The directory of a cache that is not there yet, in a process without prebuilt or installed kernels."""
    monkeypatch.setattr(readiness, "installed_kernels", lambda: None)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(cache.PREBUILT_VARIABLE, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def loaded(monkeypatch):
    """What was done to ready the compiler: headers read, and the library loaded, in this order."""
    done = []
    tree = sources.SourceTree(sources.source_root())
    monkeypatch.setattr(readiness, "source_tree", lambda: tree)
    monkeypatch.setattr(tree, "closure", lambda name, text: done.append(text))
    monkeypatch.setattr(nvrtc, "load", lambda: done.append("NVRTC"))
    return done


def test_the_compiler_is_readied_where_nothing_is_compiled(directory, loaded):
    readiness.ready_compiler(SOURCE)
    assert loaded == [SOURCE, "NVRTC"]


@pytest.mark.parametrize(("kind", "ready"), [("toolchain", True), ("cubin", False), ("ptx", False)])
def test_what_is_cached_may_be_what_is_needed(directory, loaded, kind, ready):
    DiskCache(str(directory)).store(f"{kind}-{NAME}", {}, b"")
    readiness.ready_compiler(SOURCE)
    assert bool(loaded) == ready


def test_without_a_cache_everything_is_compiled(directory, loaded, monkeypatch):
    DiskCache(str(directory)).store(f"cubin-{NAME}", {}, b"")
    monkeypatch.setenv(cache.VARIABLE, "off")
    readiness.ready_compiler(SOURCE)
    assert loaded


def test_who_ships_kernels_waits_for_no_compiler(directory, loaded, monkeypatch, tmp_path):
    monkeypatch.setenv(cache.PREBUILT_VARIABLE, str(tmp_path))
    readiness.ready_compiler(SOURCE)
    monkeypatch.delenv(cache.PREBUILT_VARIABLE)
    monkeypatch.setattr(readiness, "installed_kernels", object)
    readiness.ready_compiler(SOURCE)
    assert not loaded


def test_a_directory_that_is_missing_is_told_and_nothing_loaded(directory, loaded, monkeypatch, tmp_path):
    monkeypatch.setenv(cache.PREBUILT_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(CacheError):
        readiness.ready_compiler(SOURCE)
    assert not loaded


def test_what_is_read_ahead_is_not_read_again(directory, monkeypatch):
    read = []
    parse = sources._parse

    def counted(program, name, text):
        read.append(name)
        return parse(program, name, text)

    monkeypatch.setattr(sources, "_parse", counted)
    tree = sources.SourceTree(sources.source_root())
    monkeypatch.setattr(readiness, "source_tree", lambda: tree)
    monkeypatch.setattr(nvrtc, "load", lambda: None)
    readiness.ready_compiler(ahead.HEADERS)
    assert len(read) > 30
    read.clear()
    tree.closure("k.cu", '#include "operators.cuh"\n#include "whole/reduce_tiles.cuh"\n')
    assert read == ["k.cu", "whole/reduce_tiles.cuh"]
