"""Every test of this directory runs on a real GPU and on a simulated one: the fixture `machine` decides.

On a real GPU by default alone, with ``--simulated`` on both. Without a GPU the real half is skipped and says why, and
the simulated half runs, with fewer and smaller problems: what a test asks of the fixture `cut`.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from lowlevel_reduce import Context, Device, Stream, simulator
from lowlevel_reduce.driver import binding, why_unavailable
from lowlevel_reduce.strategy import elements, rows, selection

_T = TypeVar("_T")

with binding.use("cuda"):
    REASON = why_unavailable()

# Tests that a simulated GPU cannot run: by their name, or their class's.
NOT_SIMULATED = {
    "TestTorch": "PyTorch speaks to NVIDIA's driver, not to a simulated one",
    "TestCuPy": "CuPy speaks to NVIDIA's driver, not to a simulated one",
    "test_own_protocols_round_trip": "cuda.core, which views foreign arrays, speaks to NVIDIA's driver",
    "test_read_only_out": "cuda.core, which views foreign arrays, speaks to NVIDIA's driver",
    "test_events": "the simulator tells no time",
    "test_pointer_info_of_managed_memory": "managed memory is not simulated",
    "test_lengths_past_31_bits": "NumPy would take hours for 2^31 elements",
    "test_what_is_no_cubin": "a simulated driver takes PTX, and refuses other text itself",
    "test_a_process_with_the_wheel_needs_no_compiler": "another process has a driver of its own, NVIDIA's",
    "test_a_program_without_python_sums_arrays_of_every_rule": "the program speaks to NVIDIA's driver",
    "test_second_process_does_not_load_the_compiler": "another process has a driver of its own, NVIDIA's",
}


# First, so that a test has one name: pytest asks this file before or after its own fixtures, as it is given arguments.
@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        simulated = REASON is not None or metafunc.config.getoption("simulated")
        machines = ["cuda", "simulated"] if simulated else ["cuda"]
        if REASON is not None and metafunc.config.getoption("tier") in ("test", "rest"):
            machines = ["simulated"]  # these run none that is skipped, and to collect 5,000 of them takes seconds
        metafunc.parametrize("machine", machines, indirect=True, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        assert isinstance(item, pytest.Function), f"{item} is no test function"
        # The hook sees the whole session's items; only those of this folder have a machine.
        machine = item.callspec.params.get("machine") if hasattr(item, "callspec") else None
        if machine == "cuda" and REASON is not None:
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {REASON}"))
        for name in {item.originalname, item.cls and item.cls.__name__} & NOT_SIMULATED.keys():
            if machine == "simulated":
                item.add_marker(pytest.mark.skip(reason=f"not simulated: {NOT_SIMULATED[name]}"))
        for mark in item.iter_markers("simulated_if"):
            params = {name: value for name, value in item.callspec.params.items() if name != "machine"}
            if machine == "simulated" and not mark.args[0](**params):
                item.add_marker(pytest.mark.skip(reason="not simulated: others like it are"))


@pytest.fixture(scope="module", autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The driver that a module's tests speak to: "cuda", or "simulated" for an H200 in NumPy."""
    if request.param == "cuda":
        request.getfixturevalue("kept")
        with binding.use("cuda"):
            yield request.param
    else:
        request.getfixturevalue("kept_kernels")
        with simulator.use("H200"):
            yield request.param


@pytest.fixture(scope="session")
def kept() -> Iterator[None]:
    """The real primary context, retained for the session: letting go of it would tear it down after each module."""
    with binding.use("cuda"):
        primary = Context.primary()
    with primary:
        yield


@pytest.fixture
def cut(machine: str) -> Callable[[_T, _T], _T]:
    """Choose what a test goes through: ``cut(all, some)`` is `all` on a real GPU, and `some` where it is simulated."""
    return lambda everything, some: some if machine == "simulated" else everything


@pytest.fixture
def forgotten_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test puts in the place of the policy's functions decide, and nothing that was chosen before."""
    monkeypatch.setattr(selection, "_chosen", type(selection._chosen)())


@pytest.fixture
def without_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small columns and short rows take the kernels that large ones take."""
    for module in (elements, rows):
        monkeypatch.setattr(module, "faster_elements", lambda *_: None)


@pytest.fixture(scope="module")
def device(machine: str) -> Device:
    return Device(0)


@pytest.fixture(scope="module")
def primary(device: Device) -> Iterator[Context]:
    """The primary context, retained for the module: letting go of it would tear it down after each test."""
    with Context.primary(device) as primary:
        yield primary


@pytest.fixture
def context(device: Device, primary: Context) -> Iterator[Context]:
    """The primary context, current on this thread; what was current before is current afterwards."""
    with Context.primary(device) as context, context.pushed():
        yield context


@pytest.fixture
def stream(context: Context) -> Iterator[Stream]:
    with Stream.create(context) as stream:
        yield stream
        stream.synchronize()
