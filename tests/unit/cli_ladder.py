"""A ladder of made-up rungs and records, so that the command line is tested without compiling or running a kernel."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

KEYS = [
    "rung", "system", "n", "dtype", "value", "reference", "relative_error", "correct", "expected_correct",
    "microseconds", "gb_per_s", "percent_of_peak", "counters",
]  # fmt: skip

COUNTERS = {
    "instructions": 4000,
    "instructions_by_class": {"float": 12},
    "global_loads": 2049,
    "global_load_sectors": 8196,
    "bank_conflicts": 77,
    "divergent_branches": 1234567,
    "atomics": 65,
}


@dataclass(frozen=True)
class Rung:
    id: str
    system: str
    source: Path
    title: str = "a rung"
    published: dict[str, float] | None = None
    operation: str = "sum"
    needs_clusters: bool = False

    def lacking(self, device: Any) -> str | None:
        return f"{device.name} has no clusters" if self.needs_clusters and not device.supports_clusters else None


@dataclass(frozen=True)
class Record:
    rung: str
    system: str
    n: int = 1000
    dtype: str = "float32"
    value: float = 500.25
    reference: float = 500.0
    relative_error: float = 5e-4
    correct: bool = True
    expected_correct: bool = True
    microseconds: float | None = None
    gb_per_s: float | None = None
    percent_of_peak: float | None = None
    counters: dict[str, Any] | None = None
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "fault"}


SOURCE = Path("unused.cu")
RUNGS = {
    rung.id: rung
    for rung in (
        Rung("slow", "A", SOURCE, published={"gb_per_s": 50.0, "percent": 1.5}),
        Rung("fast", "A", SOURCE, needs_clusters=True, published={"gb_per_s": 3250.0, "percent": 97.0}),
        Rung("atomic", "B", SOURCE, published={"milliseconds": 133.74}),
        Rung("shared", "B", SOURCE),
        Rung("shuffle", "B", SOURCE),
        Rung("race", "E", SOURCE),
        Rung("tree", "E", SOURCE),
    )
}
MICROSECONDS = {
    "slow": 8000.0, "fast": 100.0, "atomic": 133740.0, "shared": 4220.0, "shuffle": 3870.0, "race": 10.0, "tree": 40.0,
}  # fmt: skip


def timed(rung: Rung, **changes: Any) -> Record:
    """Return a record as a GPU gives it."""
    us = MICROSECONDS[rung.id]
    right = rung.id != "race"
    record = Record(rung.id, rung.system, 10**8, correct=right, expected_correct=right, microseconds=us)
    return replace(record, **{"gb_per_s": 4e5 / us, "percent_of_peak": 4e5 / us / 48.14, **changes})


def counted(rung: Rung, **changes: Any) -> Record:
    """Return a record as a simulated device gives it."""
    right = rung.id != "race"
    return replace(Record(rung.id, rung.system, correct=right, expected_correct=right, counters=COUNTERS), **changes)


def source_diff(rung: Rung) -> list[tuple[str, str]]:
    return [(" ", "{"), ("-", "old < line;"), ("+", f"{rung.id} & new;"), (" ", "}")]
