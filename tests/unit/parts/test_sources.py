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


@pytest.mark.parametrize("seed", range(8))
def test_any_run_of_an_array_of_any_strides_or_of_several_is_read(seed):
    drawn = np.random.default_rng(seed)
    shape = tuple(int(each) for each in drawn.integers(1, 7, int(drawn.integers(1, 5))))
    parts = []
    for rows in drawn.integers(0, 5, 5):
        of_part = (int(rows), *shape[1:])
        axes = drawn.permutation(len(shape))
        whole = np.arange(4 * np.prod(of_part), dtype="f4").reshape(4, *(of_part[each] for each in axes))[1]
        part = whole.transpose(np.argsort(axes))[:: drawn.choice([-1, 1])]
        assert part.shape == of_part
        parts.append(part + np.float32(0) if drawn.integers(2) else part)
    flat = np.concatenate([each.reshape(-1) for each in parts])
    for source, expected in [
        (sources.source_of(parts), flat),
        *((sources.source_of(each), each.reshape(-1)) for each in parts),
    ]:
        assert source.is_random
        for _ in range(20):
            start, end = sorted(drawn.integers(0, len(expected) + 1, 2))
            if start < end:
                out = np.empty(end - start, "f4")
                source.read(out, start)
                np.testing.assert_array_equal(out, expected[start:end])


@pytest.mark.parametrize("array", [np.float32(3), np.empty((3, 0, 2), "f4"), np.asfortranarray(np.empty((0, 4), "f4"))])
def test_files_of_one_number_and_of_none(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    source = sources.source_of(tmp_path / "x.npy")
    assert source.shape == np.shape(array)
    if np.size(array):
        out = np.empty(1, "f4")
        source.read(out, 0)
        assert out == array
    source.close()


def test_elements_in_the_other_byte_order_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3, ">f4"))
    for x in (tmp_path / "x.npy", np.ones(3, ">f4"), [np.ones(3, ">f4")]):
        with pytest.raises(UnsupportedError, match="byte order"):
            sources.source_of(x)
