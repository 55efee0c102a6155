"""Slots for results: their memory and they are there together, wherever an interrupt comes."""

import itertools
from types import SimpleNamespace

import interrupts

from lowlevel_reduce.arrays import results


def test_an_interrupt_leaves_no_memory_without_slots(monkeypatch):
    chunk = SimpleNamespace(pointer=1 << 20)
    monkeypatch.setattr(results, "Buffer", SimpleNamespace(allocate_async=lambda size, stream: chunk))
    monkeypatch.setattr(results, "Slot", lambda pointer, of: pointer)
    for step in itertools.count():
        of = results.Slots(None, SimpleNamespace(id=1))
        over = interrupts.interrupted(of.take, step, files={results.__file__}) is None
        assert len(of._chunks) * results._SLOTS - len(of.free) in (0, 1), f"but for the one that is taken, step {step}"
        assert len(set(of.free)) == len(of.free)
        if over:
            break
    assert step > 30
