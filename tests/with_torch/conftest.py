"""The package beside PyTorch without a GPU: kernels run on a simulated device, and PyTorch is a build for the CPU.

What needs PyTorch on a real GPU is in tests/gpu. This folder has not the name of the library, which its own folder
would hide where the library is missing.
"""

from collections.abc import Iterator

import pytest

from lowlevel_reduce import Context, Device, Stream, simulator


@pytest.fixture(scope="session", autouse=True)
def _compiled(kept_kernels: None) -> None:
    """Some of these tests run compiled kernels."""


@pytest.fixture
def context() -> Iterator[Context]:
    with simulator.use("H200"), Context.primary(Device(0)) as context, context.pushed():
        yield context


@pytest.fixture
def stream(context: Context) -> Iterator[Stream]:
    with Stream.create(context) as stream:
        yield stream
