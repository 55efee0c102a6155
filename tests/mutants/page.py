"""The section of docs/reliability.md that is written from a run of the mutants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.mutants.catalogue import Mutant
from tests.mutants.runner import ERROR, GONE, KILLED, SURVIVED, TIMED_OUT, Verdict

_HEAD = """\
## Mutants

A mutant is one small change that makes the code wrong: operands that are swapped, a barrier that is left out, a bound
that is one too large, a context that is not restored. `tests/mutants/lists` has one file of them for each area; each
entry says what goes wrong and which test must fail then. The tool copies the tree, makes one change, runs that test and
takes the change out again. It needs NVRTC and no GPU: kernels run on the simulated one.

A mutant is killed if its test fails. It survives if the test passes, and also if its text is no longer in the code, so
that the list follows the code. A change after which the code does the same as before is no mutant and is not listed.

<!-- not run: all mutants take minutes; tests/unit/test_mutants.py runs the list -->

```
python -m tests.mutants --list                                 # the list, and whether each text is in the code once
python -m tests.mutants --only tree-slots-from-the-right       # one of them
python -m tests.mutants --jobs 32 --json mutants.jsonl --page docs/reliability.md
```

With `--json`, verdicts are kept, and a run that was cut goes on where it ended. This section is written by the last
command.
"""

_TABLE = ("| area | what is changed | mutants | killed |", "| --- | --- | --: | --: |")


def text(mutants: Sequence[Mutant], about: Mapping[str, str], verdicts: Mapping[str, Verdict], where: str) -> str:
    """Return the section: `about` says what each area is, `where` when and of which commit the verdicts are."""
    words = {each.id: verdicts[each.id].word if each.id in verdicts else "" for each in mutants}
    left = [each for each in mutants if words[each.id] in (SURVIVED, GONE, ERROR)]
    lines = [_HEAD, f"{_score(words)} {where}", "", *_TABLE]
    for area in sorted({each.area for each in mutants}):
        of_area = [words[each.id] for each in mutants if each.area == area]
        lines.append(f"| {area} | {about[area]} | {len(of_area)} | {_killed(of_area)} |")
    lines += [f"| **all** | | {len(mutants)} | {_killed(words.values())} |", ""]
    lines += [f"- `{each.id}` in `{each.file}` {words[each.id]}: {each.why}" for each in left]
    return "\n".join(lines).rstrip("\n") + "\n"


def _killed(words: Iterable[str]) -> int:
    return sum(word in (KILLED, TIMED_OUT) for word in words)


def _score(words: Mapping[str, str]) -> str:
    count = Counter(words.values())
    survive = count[SURVIVED] + count[GONE]
    parts = [f"{_killed(words.values())} of {len(words)} mutants are killed"]
    parts += [f"{count[TIMED_OUT]} of these by the time limit"] if count[TIMED_OUT] else []
    parts += ["none survives" if not survive else f"{survive} survive"]
    parts += [f"{count[ERROR]} have tests that do not run"] if count[ERROR] else []
    parts += [f"{count['']} were not run"] if count[""] else []
    return ", ".join(parts)
