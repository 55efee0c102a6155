"""Injected faults: which of the following calls are to fail, and with which result code."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

__all__ = ["Faults"]


class Faults:
    """The pending faults, each for one function or for any function."""

    def __init__(self) -> None:
        self._pending: list[list[Any]] = []  # [function or None, calls until it is due, code]

    def add(self, name: str | None, nth: int, code: Any) -> None:
        """Inject a fault into the `nth` call from now on, of the function `name` or, if that is None, of any function.

        Raises
        ------
        ValueError
            If `nth` is not positive, or `code` is success or not a result code.
        """
        if nth < 1:
            raise ValueError(f"the next call is number 1, not {nth}")
        result = _result(code)
        if not result:
            raise ValueError("success is no fault")
        self._pending.append([name, nth, result])

    def due(self, name: str) -> Any:
        """Count a call of `name`; return the code that it is to fail with, or None."""
        code = None
        for fault in self._pending:
            if fault[0] in (None, name):
                fault[1] -= 1
                if not fault[1]:
                    code = code or fault[2]
        if code is not None:
            self._pending = [fault for fault in self._pending if fault[1] > 0]
        return code


def _result(code: Any) -> Any:
    if not isinstance(code, str):
        return cu.CUresult(int(code))
    name = code if code.startswith("CUDA_") else f"CUDA_ERROR_{code}"
    if not hasattr(cu.CUresult, name):
        raise ValueError(f"{code!r} is no result code")
    return getattr(cu.CUresult, name)
