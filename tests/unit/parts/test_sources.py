"""Sources of arrays in pieces: files that were opened for an array that is refused are closed."""

import os

import numpy as np
import pytest

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.parts import sources


@pytest.fixture
def opened(monkeypatch):
    """Tell which files are open by ``os.open``."""
    now, make, close = set(), os.open, os.close

    def opening(*arguments, **options):
        file = make(*arguments, **options)
        now.add(file)
        return file

    def closing(file):
        now.discard(file)
        close(file)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    return now


@pytest.mark.parametrize(
    ("second", "error"),
    [("other.npy", ValueError), ("nothing.npy", FileNotFoundError), ("words.npy", UnsupportedError)],
)
def test_files_before_one_that_does_not_fit_are_closed(tmp_path, opened, second, error):
    np.save(tmp_path / "first.npy", np.ones(3, "f4"))
    np.save(tmp_path / "other.npy", np.ones((3, 2), "f4"))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    with pytest.raises(error):
        sources.source_of([tmp_path / "first.npy", tmp_path / second])
    assert not opened
    joined = sources.source_of([tmp_path / "first.npy", np.ones(2, "f4")])
    assert len(opened) == 1
    assert joined.shape == (5,)
    joined.close()
    assert not opened
