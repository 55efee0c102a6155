"""The public functions on simulated GPUs: they need NVRTC and no GPU; without NVRTC they are skipped and say so."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from lowlevel_reduce import Context, Device, Stream, simulator
from lowlevel_reduce.compiler import program, sources


@pytest.fixture(scope="session", autouse=True)
def _compiled(kept_kernels: None) -> None:
    """Every test here runs compiled kernels."""


@pytest.fixture
def name() -> str:
    """The simulated device; a test may ask for another one."""
    return "H200"


@pytest.fixture
def driver(name: str) -> Iterator[simulator.SimulatedDriver]:
    with simulator.use(name) as driver:
        yield driver


@pytest.fixture
def context(driver: simulator.SimulatedDriver) -> Iterator[Context]:
    with Context.primary(Device(0)) as context, context.pushed():
        yield context


@pytest.fixture
def stream(context: Context) -> Iterator[Stream]:
    with Stream.create(context) as stream:
        yield stream


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[tuple[str, str, str]]], None]:
    """Compile from a copy of the sources with some places replaced."""

    def edit(edits: Iterable[tuple[str, str, str]]) -> None:
        copy = tmp_path / "cuda_src"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sources.source_root(), copy)
        for name, old, new in edits:
            text = (copy / name).read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times, not once"
            (copy / name).write_text(text.replace(old, new), encoding="utf-8")
        tree = sources.SourceTree(copy)
        monkeypatch.setattr(program, "source_tree", lambda: tree)

    return edit
