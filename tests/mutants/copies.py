"""Copies of the work tree, in which mutants are put in place and taken out again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.catalogue import ROOT, Mutant

_LEFT_OUT = ("__pycache__", "build", "dist")


def files(root: Path = ROOT) -> list[str]:
    """Return the tree's files, relative to `root`: those of git or, where there is none, all but what tools make."""
    git = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
        return sorted(name for name in set(listed) if (root / name).is_file())
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _LEFT_OUT]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def digest(mutant: Mutant, root: Path = ROOT) -> str:
    """Return a digest of a mutant, its file and its tests: what was found out holds as long as it is the same."""
    made = hashlib.sha256(mutant.digest.encode())
    for name in sorted({mutant.file, *(test.split("::")[0] for test in mutant.tests)}):
        made.update(name.encode() + b"\0" + hashlib.sha256((root / name).read_bytes()).digest())
    return made.hexdigest()[:16]


class Copy:
    """A copy of the tree in a folder of its own."""

    def __init__(self, folder: Path, names: list[str], root: Path = ROOT) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self._changes = 0
        for name in names:
            target = self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Have a mutant in the copy for the length of the block; its text must occur once."""
        path = self.tree / mutant.file
        before, times = path.read_bytes(), path.stat()
        self._changes += 1
        try:
            path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new, 1), encoding="utf-8")
            # Python takes compiled code for up to date by the source's length and its time in whole seconds.
            os.utime(path, (times.st_atime, times.st_mtime + self._changes))
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
