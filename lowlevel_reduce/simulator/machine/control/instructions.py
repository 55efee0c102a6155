"""All instructions that the machine knows, by opcode."""

from __future__ import annotations

from lowlevel_reduce.simulator.machine.arithmetic import basic, carries, convert, matrix, narrow, packed
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
from lowlevel_reduce.simulator.machine.control import warps
from lowlevel_reduce.simulator.machine.memory import asynchronous, atomics, loads, mbarriers
from lowlevel_reduce.simulator.machine.races import prerequisites
from lowlevel_reduce.simulator.ptx.declared import END_OF_CODE

__all__ = ["CONTROL", "DECODERS", "WARP_INSTRUCTIONS"]

CONTROL = frozenset({"bra", "ret", "call", "brx", "exit", "trap", "nanosleep", "bar", "barrier", END_OF_CODE})
"""The opcodes that decide where a thread goes on, and when."""

DECODERS: dict[str, Decoder] = {
    **basic.DECODERS,
    **convert.DECODERS,
    **loads.DECODERS,
    **atomics.DECODERS,
    **warps.DECODERS,
    # These decode further forms of some opcodes above, and delegate the plain forms.
    **packed.DECODERS,
    **carries.DECODERS,
    **narrow.DECODERS,
    **asynchronous.DECODERS,
    **mbarriers.DECODERS,
    **matrix.DECODERS,
    **prerequisites.DECODERS,
}
"""The decoder of each opcode."""

WARP_INSTRUCTIONS = ("shfl", "vote", "redux", "match", "elect", *matrix.DECODERS)
"""The opcodes that are executed once all lanes of a member mask have reached the instruction."""
