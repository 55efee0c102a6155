"""Interrupts at every place, in order: a trace function acts before any bytecode that a test names."""

import dis
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

from lowlevel_reduce.driver.current import Pushed
from tests.fuzz.tracing import trace_bytecodes

_UNSEEN = {Pushed.__del__.__code__}
"""Python prints what is raised there, and goes on; it does something only where an interrupt came before."""


@functools.lru_cache(None)
def looked_at(code: CodeType) -> frozenset[int]:
    """Return the offsets of the bytecodes before which Python looks for signals: behind calls, and at the beginning."""
    instructions = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    behind = {b.offset for a, b in itertools.pairwise(instructions) if a.opname.startswith(("CALL", "RESUME"))}
    return frozenset(behind | {instructions[0].offset})


def at_step(
    call: Callable[[], object],
    step: int,
    act: Callable[[], object],
    *,
    files: Collection[str],
    signals_only: bool = False,
) -> bool:
    """Call, and act before the given one of its bytecodes in these files; tell whether it had so many.

    With `signals_only` those count before which Python runs a signal's handler.
    """
    left = [step]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files or frame.f_code in _UNSEEN:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and (not signals_only or frame.f_lasti in looked_at(frame.f_code)):
            left[0] -= 1
            if left[0] == -1:
                act()
        return trace

    before = sys.gettrace()
    gc.disable()  # what the collector calls is no step
    trace_bytecodes(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return left[0] < 0


def interrupt() -> None:
    """Do what Python's handler of Ctrl-C does."""
    raise KeyboardInterrupt


def interrupted(
    call: Callable[[], object], step: int, *, files: Collection[str], signals_only: bool = False
) -> KeyboardInterrupt | None:
    """Call, interrupted at that step; return the interrupt, or None if there were fewer steps."""
    try:
        assert not at_step(call, step, interrupt, files=files, signals_only=signals_only), "the interrupt was swallowed"
    except KeyboardInterrupt as error:
        return error
    return None
