"""Trace functions that act before bytecodes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["trace_bytecodes"]


def trace_bytecodes(trace: Callable[[FrameType, str, Any], Any]) -> None:
    """Set a trace function that asks for bytecodes: Python 3.12 tells of them only where a frame has asked before."""
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
