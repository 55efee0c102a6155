"""The section of docs/reliability.md that the soak writes from its own run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.fuzz.tally import Tally
from tests.soak.kinds import GROUPS, Kind

__all__ = ["summary", "table", "text"]

_HEAD = """\
## Soak

The library is attacked: by inputs that are wrong, by calls of the driver, allocations and file operations that fail, by
interrupts, by mutated kernels, and by being used for very long. Each trial is drawn from the run's seed, and most are
made on the simulated device, whose objects are counted. After each one the operation must give the right result again,
and nothing may be lost: no wrong result, no error of another kind than those that are documented, nothing of the driver
that was not released, no lock that is held. What the driver itself refused to release does not count; nor, where an
allocation fails, what CPython loses by itself, which is looked for: its own process, or an object that nothing refers
to any more, as a list that `list(values)` was to copy; code, of which it drops too many references, is held for it.
Allocations are those of Python, by their number, and those of NumPy's arrays, which NumPy takes elsewhere.

<!-- not run: it takes minutes, and is tests of its own -->

```
make soak                                                               # this, soak tests, and the mutants
python -m tests.soak --list                                             # the kinds, and how many trials
python -m tests.soak --seed 7 --only "signals whose handler raises"     # one kind of the run of that seed
python -m tests.soak --json soak.json --page docs/reliability.md
```

This section is written by the last command.
"""

_TABLE = (
    "| what was tried | trials | went on | refused by an error | lost | seconds |",
    "| --- | --: | --: | --: | --: | --: |",
)


def text(kinds: Sequence[Kind], tallies: Mapping[str, Tally], reasons: Mapping[str, str], where: str) -> str:
    """Return the section: `reasons` says of the kinds without a tally why there is none, `where` when it was run."""
    lines = [_HEAD, f"{summary(kinds, tallies)} {where}", "", *table(kinds, tallies), ""]
    lines += [f"- {name} were not tried: {why}" for name, why in reasons.items()]
    for tally in tallies.values():
        lines += [f"- lost: {tally.kind}, seed {tally.seed}: {each}" for each in tally.lost[:5]]
    return "\n".join(lines).rstrip("\n") + "\n"


def summary(kinds: Sequence[Kind], tallies: Mapping[str, Tally]) -> str:
    """Return one sentence that counts what was tried, by groups, and what was lost."""
    parts = []
    for group in GROUPS:
        found = [tallies[kind.name].tried for kind in kinds if kind.group == group and kind.name in tallies]
        parts += [f"{sum(found):,} {group}"] if found else []
    lost = sum(len(tally.lost) for tally in tallies.values())
    return f"{', '.join(parts)}; lost: {lost or 'nothing'}."


def table(kinds: Sequence[Kind], tallies: Mapping[str, Tally]) -> list[str]:
    """Return the table's lines."""
    lines = list(_TABLE)
    for group, what in GROUPS.items():
        found = [tallies[kind.name] for kind in kinds if kind.group == group and kind.name in tallies]
        if not found:
            continue
        whole = Tally(f"**{group}**: {what}", 0)
        for tally in found:
            whole.add(tally)
        lines += [_row(each) for each in (whole, *found)]
    return lines


def _row(tally: Tally) -> str:
    numbers = (tally.tried, tally.accepted, tally.refused.total(), len(tally.lost))
    return f"| {tally.kind} | {' | '.join(f'{number:,}' for number in numbers)} | {tally.seconds:.0f} |"
