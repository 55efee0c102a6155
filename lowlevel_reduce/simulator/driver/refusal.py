"""How a driver function refuses: by an exception, of which the facade makes a result code."""

from __future__ import annotations

from typing import Any, NoReturn

from cuda.bindings import driver as cu

__all__ = ["Refusal", "refuse"]


class Refusal(Exception):  # noqa: N818 - not an error of ours: the facade turns it into a result code
    """Ends a driver function with a result code other than success."""

    def __init__(self, code: Any) -> None:
        super().__init__(code.name)
        self.code = code


def refuse(name: str) -> NoReturn:
    """End the driver's function with the result code ``CUDA_ERROR_<name>``."""
    raise Refusal(getattr(cu.CUresult, f"CUDA_ERROR_{name}"))
