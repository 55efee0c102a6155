"""What demonstrations of launch attributes compute on the host: links, steps beside a flood, layouts, the verdict."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from lowlevel_reduce.study import memory, placement
from lowlevel_reduce.study.bench import STAMP

SIZE = 1 << 16


def test_links_lead_through_all_of_the_memory_and_back():
    words, step = memory.links(SIZE), memory._LINK_BYTES // 4
    seen, at = [], 0
    while not seen or at:
        seen.append(at)
        at = int(words[at])
    assert sorted(seen) == list(range(0, SIZE // 4, step))
    assert words.nbytes == SIZE
    assert len(set(np.diff(seen).tolist())) > len(seen) // 2  # in no order that a prefetcher would find


@pytest.mark.parametrize(
    ("end", "us"), [(99_000, 10.5), (31_501, 10.5), (31_500, 10.25), (20_501, 10.25), (20_500, 10), (10_000, None)]
)
def test_a_step_is_the_mean_of_those_beside_the_flood(end, us):
    assert memory.step_us([0, 10_000, 20_500, 31_500], end) == us


class FloodedBench:
    """Answers as a device would on which a step takes 3 µs, and 300 beside a flood of its own physical domain.

    A launch takes the host 80 µs.
    """

    def __init__(self, *, serial=False, apart_us=3):
        self.context = SimpleNamespace(multiprocessor_count=132)
        self.device = SimpleNamespace(attribute={"MEM_SYNC_DOMAIN_COUNT": 4}.__getitem__)
        self.stream = object()
        self._serial, self._apart_us = serial, apart_us
        self._next = 0
        self._stamps = {}  # by address
        self._flood = None
        self._now = self._launched = 0

    def new_stream(self):
        return object()

    def memory(self, size_bytes):
        self._next += 1 << 32
        return SimpleNamespace(pointer=self._next, size_bytes=size_bytes)

    host_memory = memory

    def run(self, name, config, out, *values, stream=None):
        self._launched += 80_000
        begin = max(self._now, self._launched)
        if name == "study_flood":
            _, duration, out = values
            assert stream is None
            assert 0 < config.grid_blocks < self.context.multiprocessor_count
            logical = ["default", "remote"].index(config.memory_sync_domain)
            self._flood = (config.memory_sync_domain_map or (0, 1))[logical]
            self._stamps[out] = (begin, 0, begin + duration, 0)
            self._now = begin + duration if self._serial else begin
            return
        assert name == "study_spin"
        assert stream is not None
        self._now = begin + values[0] + 1000 * {None: 3, 0: 300}.get(self._flood, self._apart_us)
        self._stamps[out] = (begin, 0, self._now, 0)

    def read(self, buffer, dtype):
        self._flood, self._launched = None, self._now
        offsets = range(0, buffer.size_bytes, STAMP.itemsize)
        return np.array([self._stamps[buffer.pointer + offset] for offset in offsets], dtype)


@pytest.mark.parametrize("demonstrate", [memory.domain, memory.domain_map])
def test_a_domain_is_seen_by_the_steps_of_a_stream(demonstrate):
    def seen(**options):
        said = demonstrate(FloodedBench(**options)).split("writes to the host: ")[1]
        return re.findall(r"([\d.]+) µs", said), said.partition("µs")[2].partition(":")[2]

    assert seen() == (["3.0", "3.0", "300.0"], "")
    assert seen(apart_us=300) == (["3.0", "300.0", "300.0"], " no difference seen")
    assert seen(apart_us=400) == (["3.0", "400.0", "300.0"], " the other way round than expected")
    assert demonstrate(FloodedBench(serial=True)).startswith("not to be seen")


class LayingBench:
    """Lays clusters by policy: `load_balancing` beside busy blocks, others on them once they have ended."""

    def __init__(self):
        self.context = SimpleNamespace(multiprocessor_count=16)
        self.has_clock, self.stream = True, object()
        self._balanced = False

    def new_stream(self):
        return object()

    def memory(self, size_bytes):
        return SimpleNamespace(pointer=0, size_bytes=size_bytes)

    def run(self, name, config, *values, stream=None):
        self._balanced = config.cluster_scheduling == "load_balancing"

    def meet(self, config):
        assert (config.cluster[0], config.cooperative) == (4, True)
        where = np.arange(config.grid_blocks) % (16 if config.cluster_scheduling == "load_balancing" else 8)
        return {"multiprocessor": where}

    def read(self, buffer, dtype):
        stamps = np.zeros(buffer.size_bytes // STAMP.itemsize, dtype)
        if len(stamps) == 8:  # the busy blocks: one on each of half of the multiprocessors
            stamps["multiprocessor"], stamps["end"] = np.arange(8), np.arange(100, 108)
        else:
            late = np.arange(len(stamps)) >= 2
            stamps["begin"] = np.where(late & (not self._balanced), 100, 99)
            stamps["multiprocessor"] = 8 if self._balanced else np.where(late, 7, 8)
        return stamps


def test_layouts_are_told_by_policy():
    idle, busy = placement.scheduling(LayingBench()).split("; ")
    assert idle.startswith("32 blocks in clusters of 4, ")
    assert idle.endswith("cluster: default 8/4/4, spread 8/4/4, load_balancing 16/2/4")
    assert busy.startswith("in clusters of 8 beside 8 busy blocks")
    assert busy.endswith("ended: default 30/30, spread 30/30, load_balancing 0/0")


@pytest.mark.parametrize(
    ("less", "more", "said"),
    [
        ([1, 2, 3], [4, 5], ""),
        ([1, 2, 4], [4, 5], ": no difference seen"),
        ([5, 6], [5, 4], ": no difference seen"),
        ([6, 7], [5, 4], ": the other way round than expected"),
    ],
)
def test_a_difference_is_one_between_all_samples(less, more, said):
    assert memory.verdict(less, more) == said
