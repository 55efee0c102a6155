"""What each launch attribute is for, and what it did when it was measured on a GPU, by its number.

The measurements are those of one committed record, ``benchmarks/results/2026-11-22-h200-attributes-two-gpus.jsonl``, of
two H200 of one host: a test compares them. What an attribute does on the device at hand, `attributes.rows` shows.
"""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["MEASURED", "PURPOSES"]

PURPOSES = MappingProxyType(
    {
        1: "keeps a range of memory in the L2 while other data passes through it",
        2: "lets all blocks of a grid wait for each other, since all are resident at once",
        3: "chooses how the host waits for a stream: busily, or asleep",
        4: "puts blocks into clusters, which read each other's shared memory and meet at barriers",
        5: "chooses whether clusters are spread over multiprocessors or balanced",
        6: "lets the next kernel of a stream begin before this one has ended",
        7: "the same across streams and graphs: an event that blocks trigger before they end",
        8: "lets the blocks of one launch begin before the waiting blocks of another",
        9: "gives the logical domains of memory ordering their physical ones",
        10: "keeps a kernel's fences from waiting for another kernel's remote stores",
        11: "asks for larger clusters where there is room for them",
        12: "an event at the moment when the last block of a launch has begun",
        13: "lets device code change the arguments of a kernel's node in a graph",
        14: "divides a multiprocessor's memory between shared memory and the L1",
        16: "hints that a kernel is bound by NVLink, so that its blocks are placed for that",
        17: "says whether a cluster must have a size that every device of the family can run",
        18: "says the same for the amount of shared memory",
    }
)
"""What each is for, in words."""

MEASURED = MappingProxyType(
    {
        1: "190 ns a load with the window, 350 ns without",
        2: "132 blocks met at a barrier of the grid",
        3: "processor time of a wait of 20 ms: spin 20.0 ms, blocking_sync 0.1 ms",
        4: "clusters of 16 are refused unless the kernel allows them",
        5: "multiprocessors used by clusters of 4: default 124, load_balancing 132",
        6: "211 µs before the end of this one, 2 µs after the end without the attribute",
        7: "in a graph 499 µs before the end, plain 2 µs after the end",
        8: "528 blocks began before it with priority -5, 2112 with priority 0",
        9: "92.3 µs between kernels mapped to (0, 1), 278.2 µs mapped to (0, 0)",
        10: "54.4 µs between kernels in a domain of its own, 242.9 µs in the same",
        11: "no preferred one came on compute capability 9.0",
        12: "337 µs before its end",
        13: "it wrote there and not to its own",
        14: "blocks on one multiprocessor: 1 with a carveout of 15 %, 6 with a carveout of 100 %",
        16: "no difference seen",
        17: "driver or device take no form of it",
        18: "driver or device take no form of it",
    }
)
"""What each did with and without, on an H200."""
