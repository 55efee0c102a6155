"""The measured suites in a directory of results, with their file and conditions, and whether complete. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import records
from benchmarks.measure.figures import BACK_TO_BACK, OURS, SUITES, FileError, Row, median_us, row_of

__all__ = ["KIND", "PATTERN", "Suite", "card_of", "load", "load_cards", "load_kernels", "suites_in", "with_cell"]

KIND = "suites"
PATTERN = f"*-{KIND}*.jsonl"

_OTHER_MODES = ("hot", "events")
"""Rows in these modes are ignored by goals and pages, except those of the suite of small arrays, which are hot."""


@dataclass(frozen=True)
class Suite:
    """One suite, as measured in one run.

    Attributes
    ----------
    content : mapping
        Its rows and the competitors that were missing.
    file : str
        The file that holds it.
    conditions : mapping
        The conditions of the measurement.
    partial : bool
        Whether it lacks cells of the suite, because the run was a quick one or was cut short.
    seed : int or None
        The seed of random shapes.
    used_seed : bool
        Whether an earlier run had that seed already.
    """

    content: Mapping[str, Any]
    file: str
    conditions: Mapping[str, Any]
    partial: bool = False
    seed: int | None = None
    used_seed: bool = False

    @property
    def card(self) -> str:
        """The kind of GPU that it was measured on, such as H100: figures of two kinds are not compared."""
        return card_of(str(self.conditions.get("device")))

    def of(self, mode: str) -> Suite:
        """Return its rows of one mode as a suite."""
        rows = [row for row in self.rows if row.get("mode", BACK_TO_BACK) == mode]
        return replace(self, content={**self.content, "rows": rows})

    @property
    def modes(self) -> list[str]:
        """The modes of its rows, in order of appearance."""
        return list(dict.fromkeys(row.get("mode", BACK_TO_BACK) for row in self.rows))

    @property
    def rows(self) -> list[Row]:
        """Its rows."""
        return list(self.content["rows"])

    @property
    def peers(self) -> dict[str, int]:
        """The competitors that have a figure, in order of appearance, and in how many rows each has one."""
        return {
            name: many for name in self._others if (many := sum(median_us(row, name) is not None for row in self.rows))
        }

    @property
    def failures(self) -> dict[str, list[str]]:
        """The competitors that failed in every row in which they were tried, each with its errors."""
        return {
            name: [row["entries"][name]["error"] for row in self.rows if name in row["entries"]]
            for name in self._others
            if name not in self.peers
        }

    @property
    def _others(self) -> list[str]:
        return list(dict.fromkeys(key for row in self.rows for key in row["entries"] if key != OURS))

    @property
    def measured(self) -> str:
        """When it was measured: as the run recorded it, else the date at the beginning of the file's name."""
        return str(self.conditions.get("measured") or self.file[:10])


def card_of(device: str) -> str:
    """Return the kind of a GPU from its name: of "NVIDIA H100 80GB HBM3" it is H100."""
    words = device.removeprefix("NVIDIA ").split()
    return words[0] if words else device


def load(directory: Path) -> dict[str, list[Suite]]:
    """Return the runs of every suite on the kind of GPU that was measured last; see `load_cards`."""
    return next(iter(load_cards(directory).values()))


def load_cards(directory: Path) -> dict[str, dict[str, list[Suite]]]:
    """Return the runs of every suite for each kind of GPU, that of the newest run first.

    Of a suite, they are its newest complete run alone or, without one, all partial runs, newest first.

    Raises
    ------
    FileError
        If there is no file, or one is malformed.
    """
    everything = sorted(_all(directory), key=lambda each: (each[1].measured, each[1].file))
    if not everything:
        raise FileError(f"{directory} holds no {PATTERN}: run benchmarks.run")
    found: dict[str, dict[str, list[Suite]]] = {}
    seeds: set[int | None] = {None}
    for name, suite in everything:
        of_card = found.setdefault(suite.card, {})
        of_card.setdefault(name, []).append(replace(suite, used_seed=name == "shapes" and suite.seed in seeds))
        seeds |= {suite.seed} if name == "shapes" else set()
    newest = sorted(found, key=lambda card: max(s.measured for suites in found[card].values() for s in suites))
    return {card: {name: _current(suites) for name, suites in found[card].items()} for card in reversed(newest)}


def with_cell(directory: Path, suite: str, cell: str, *names: str) -> dict[str, Suite]:
    """Return, for each kind of GPU, the newest complete run of a suite that has a cell, else the newest partial one.

    Parameters
    ----------
    directory : Path
        The directory of results.
    suite, cell : str
        The suite, and the cell's name.
    *names : str
        Contenders of which each row of the cell must have a figure.

    Raises
    ------
    FileError
        If a file is malformed.
    """

    def has(each: Suite) -> bool:
        rows = [row for row in each.rows if row["cell"] == cell]
        return bool(rows) and all(median_us(row, name) is not None for row in rows for name in names)

    having = [each for name, each in _all(directory) if name == suite and has(each)]
    return {each.card: each for each in sorted(having, key=lambda each: (not each.partial, each.measured, each.file))}


def load_kernels(directory: Path) -> tuple[str, list[dict[str, Any]]] | None:
    """Return the newest list of `benchmarks.zoo` with its file's name, None if there is none.

    Raises
    ------
    FileError
        If it is malformed.
    """
    for file in sorted(directory.glob("*-zoo*.json"), reverse=True):
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise FileError(f"{file.name} is no JSON: {error}") from error
        wanted = {"operator", "dtype", "kernels", "seed", "shapes"}
        if not isinstance(rows, list) or not rows or any(wanted - set(row) for row in rows):
            raise FileError(f"{file.name} is no list of benchmarks.zoo")
        return file.name, rows
    return None


def _current(suites: list[Suite]) -> list[Suite]:
    newest_first = sorted(suites, key=lambda suite: (suite.measured, suite.file), reverse=True)
    return next(([suite] for suite in newest_first if not suite.partial), newest_first)


def _all(directory: Path) -> Iterator[tuple[str, Suite]]:
    for file in sorted(directory.glob(PATTERN)):
        document = records.read(file, KIND)
        for name, content in suites_in(document).items():
            rows = [row for row in content["rows"] if name == "small" or row.get("mode") not in _OTHER_MODES]
            if content["rows"] and not rows:
                continue
            partial = bool(document.facts.get("quick")) or not content["complete"] or len(rows) < len(content["rows"])
            seed = document.facts.get("seed")
            yield name, Suite({**content, "rows": rows}, file.name, document.conditions, partial, seed)


def suites_in(document: records.Document) -> dict[str, dict[str, Any]]:
    """Return the suites of a file by name.

    Each record names its suite. It is a row, with its cell's place among those of the suite; or the error of a cell
    that broke off; or what is known at the end of a run: the seconds, whether the suite is complete, the cells that
    were left out, and the competitors that were missing. A run that was cut short has no end, so its suites are not
    complete.

    Returns
    -------
    dict
        Of each suite ``"rows"`` in the order of its cells, ``"places"`` with the place of each row's cell,
        ``"broke_off"`` with an error for each such cell, and what its end says.

    Raises
    ------
    FileError
        Saying what is wrong with a record.
    """
    found: dict[str, dict[str, Any]] = {}
    # Files of an H200 of up to 2026-11-25 have rows without a place, in the order of the cells.
    for record in sorted(document.records, key=lambda record: int(record.get("place", 0))):
        name, said = record.get("suite"), {key: value for key, value in record.items() if key not in ("suite", "place")}
        if name not in SUITES:
            raise FileError(f"{document.file}: there is no suite {name!r}")
        suite = found.setdefault(name, {"rows": [], "places": [], "broke_off": {}, "missing": {}, "complete": False})
        if "entries" in said:
            suite["rows"].append(_checked(said, f"{document.file}: {name}"))
            suite["places"].append(int(record.get("place", 0)))
        elif "broke_off" in said:
            suite["broke_off"][said["cell"]] = said["broke_off"]
        elif {"complete", "missing"} <= said.keys():
            suite |= said  # of a run that was continued, what its last part says
        else:
            raise FileError(f"{document.file}: a record of {name} is neither a row nor an error nor the suite's end")
    for suite in found.values():
        measured = {row["cell"] for row in suite["rows"]}  # some in a later part than the one that broke off there
        suite["broke_off"] = {cell: why for cell, why in suite["broke_off"].items() if cell not in measured}
    return found


def _checked(row: Row, where: str) -> Row:
    if "cell" not in row or not isinstance(row["entries"], dict):
        raise FileError(f"{where}: a row has no cell or no entries")
    for name, entry in row["entries"].items():
        if not isinstance(entry, dict) or not ("us" in entry or "error" in entry):
            raise FileError(f"{where}, {row['cell']}: {name} has neither time nor error")
    return row_of(**row)
