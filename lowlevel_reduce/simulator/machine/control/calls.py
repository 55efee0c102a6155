"""Calls of device functions, and indexed branches.

Each thread has a stack of return places. A function has one set of registers per thread, so it cannot be called again
before it has returned. Parameters are copied to the function, and results back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import Flight, unknown
from lowlevel_reduce.simulator.machine.memory.access import GenericSpace
from lowlevel_reduce.simulator.machine.memory.flags import any_of
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Call, Copy, Instruction

__all__ = ["Calls"]

_CONVERSION = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(hh|h|ll|l|z|j|t|L)?([diouxXcsfFeEgGaAp%])")
LONGEST_TEXT = 4096


class Calls:
    """The open calls of all threads.

    Attributes
    ----------
    depth : numpy.ndarray
        From how many calls each thread has not returned yet.
    """

    def __init__(self, flight: Flight, places: Array) -> None:
        self.depth: Array = np.zeros(flight.count, np.int64)
        self._flight = flight
        self._code = flight.launch.kernel.instructions
        self._places = places
        self._returns: Array = np.zeros((flight.launch.kernel.call_depth, flight.count), np.int64)
        self._generic = GenericSpace(flight, padding=True)

    def digest(self) -> int:
        """Return a hash of the state of the stacks."""
        return hash((self.depth.tobytes(), self._returns.tobytes()))

    def call(self, instruction: Instruction, place: int, threads: Array) -> None:
        """Send threads into a function; execute a function that the machine supplies immediately."""
        call = instruction.call
        if call is None or call.problem:
            raise unknown(instruction, call.problem if call else "")
        if instruction.target is None:
            self._supplied(instruction, call, threads)
            self._places[threads] = place + 1
            return
        self._copy(call.inputs, threads)
        self._returns[self.depth[threads], threads] = place
        self.depth[threads] += 1
        self._places[threads] = instruction.target

    def returning(self, threads: Array) -> Array:
        """Let the threads that are in a function return to their callers; return the others, whose kernel ends."""
        inside = self.depth[threads] > 0
        if not any_of(inside):
            return threads
        back = threads[inside]
        self.depth[back] -= 1
        sites = self._returns[self.depth[back], back]
        for site in np.unique(sites).tolist():
            arriving = back[sites == site]
            call = self._code[site].call
            self._copy(call.outputs if call else (), arriving)
            self._places[arriving] = site + 1
        return threads[~inside]

    def switch(self, instruction: Instruction, threads: Array) -> Array:
        """Return the target of an indexed branch for each thread."""
        index = self._flight.read(instruction, instruction.operands[0], "u32")(threads).astype(np.int64)
        if (index >= len(instruction.targets)).any():
            worst = int(np.argmax(index))
            raise ThreadFault(
                int(threads[worst]), f"branches to place {int(index[worst])} of {len(instruction.targets)}"
            )
        found: Array = np.array(instruction.targets)[index]
        return found

    def _copy(self, copies: Sequence[Copy], threads: Array) -> None:
        data, stride = self._flight.calls.data, self._flight.call_stride
        for copy in copies:
            within = np.arange(copy.size)
            rows = (threads * stride)[:, None] + within
            data[rows + copy.destination] = data[rows + copy.source]

    def _supplied(self, instruction: Instruction, call: Call, threads: Array) -> None:
        if call.function == "__assertfail":
            thread = int(threads[0])
            what, file = (self._text(thread, self._word(thread, call.places[i], 8)) for i in range(2))
            line = self._word(thread, call.places[2], 4)
            raise ThreadFault(thread, f"the assertion {what!r} fails in {file}:{line}")
        if call.function != "vprintf" or len(call.places) != 3:
            raise unknown(instruction)
        for thread in threads.tolist():
            written = self._print(thread, *(self._word(thread, place, 8) for place in call.places[:2]))
            self._flight.calls.data[thread * self._flight.call_stride + call.places[2] :][:4] = np.frombuffer(
                written.to_bytes(4, "little"), np.uint8
            )

    def _print(self, thread: int, text: int, arguments: int) -> int:
        """Print for one thread and return how many values there were; wide values take eight bytes, as on a GPU."""
        position, count = arguments, 0

        def following(size: int) -> int:
            nonlocal position, count
            count += 1
            start = -(-position // size) * size
            position = start + size
            return self._load(thread, start, size)

        def value(match: re.Match[str]) -> str:
            form, length, kind = match[0], match[1] or "", match[2]
            if kind == "%":
                return "%"
            if kind in "aA":
                raise ThreadFault(thread, f"prints by {form!r}, a conversion that the simulator does not know")
            while "*" in form:  # a width or a precision, an int before the value
                form = form.replace("*", str(_signed(following(4), 32)), 1)
            size = 8 if kind in "sfFeEgGp" or length in ("l", "ll", "z", "j", "t") else 4
            bits = following(size)
            plain = form.removesuffix(length + kind) + kind
            if kind == "s":
                return plain % self._text(thread, bits)
            return _formatted(plain, kind, bits, {"h": 16, "hh": 8}.get(length, 8 * size))

        print(_CONVERSION.sub(value, self._text(thread, text)), end="")
        return count

    def _word(self, thread: int, place: int, size: int) -> int:
        start = thread * self._flight.call_stride + place
        return int.from_bytes(self._flight.calls.data[start : start + size].tobytes(), "little")

    def _load(self, thread: int, address: int, size: int) -> int:
        words = self._generic.load(np.array([thread]), np.array([address], np.uint64), size)
        return int.from_bytes(words.tobytes(), "little")

    def _text(self, thread: int, address: int) -> str:
        """Return the zero-terminated text at a generic address."""
        found = bytearray()
        while len(found) < LONGEST_TEXT and (byte := self._load(thread, address + len(found), 1)):
            found.append(byte)
        return found.decode(errors="replace")


def _signed(bits: int, width: int) -> int:
    """Return the signed integer that the lowest bits are."""
    return bits - (1 << width) if bits >> (width - 1) & 1 else bits


def _formatted(plain: str, kind: str, bits: int, width: int) -> str:
    """Return one number as ``printf`` writes it by a conversion without the letters of the length."""
    if kind in "fFeEgG":
        return plain % float(np.array(bits, np.uint64).view(np.float64))
    if kind == "p":
        return hex(bits)
    if kind == "c":
        return plain % chr(bits & 255)
    bits &= (1 << width) - 1
    if kind in "di":
        return plain % _signed(bits, width)
    return plain.replace("u", "d") % bits
