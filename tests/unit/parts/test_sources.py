"""Sources of arrays in pieces: files that were opened for an array that is refused are closed."""

import os
import subprocess
import sys

import numpy as np
import pytest

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.parts import files, sources


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


@pytest.mark.parametrize("gap", [0, 8, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_any_run_of_a_file_in_any_order_is_read(seed, gap, tmp_path, monkeypatch):
    """By runs, with what lies between elements, in memory for many or few; and with the axes in any other order."""
    drawn = np.random.default_rng(seed)
    monkeypatch.setattr(files, "GAP_BYTES", gap)
    monkeypatch.setattr(files, "MEMORY_BYTES", int(drawn.choice([4, 60, 1 << 20])))
    for axes in range(1, 5):
        shape = tuple(int(each) for each in drawn.integers(1, 7, axes))
        array = np.asfortranarray(np.arange(np.prod(shape), dtype="f4").reshape(shape))
        np.save(tmp_path / "x.npy", array)
        whole = sources.source_of(tmp_path / "x.npy")
        order = tuple(int(each) for each in drawn.permutation(axes))
        for source, expected in [(whole, array), (whole.transposed(order), array.transpose(order))]:
            assert source.shape == expected.shape
            assert source.is_contiguous == expected.flags.c_contiguous
            for _ in range(20):
                start, end = sorted(drawn.integers(0, array.size + 1, 2))
                if start < end:
                    out = np.empty(end - start, "f4")
                    source.read(out, start)
                    np.testing.assert_array_equal(out, expected.reshape(-1)[start:end])
        whole.close()


CUT_SHORT = """
import os, sys
import numpy as np
from lowlevel_reduce.parts import sources

path, order, kind = sys.argv[1:]
np.save(path, np.ones((600, 600), "f4", order=order))
x = path if kind == "path" else np.load(path, mmap_mode=kind)
source = sources.source_of(x if kind != "c" else np.asarray(x)[1:, ::-1])
if kind == "r":
    source = source.transposed((1, 0))
os.truncate(path, 500_000)
try:
    source.read(np.empty(100_000, "f4"), 200_000)
except ValueError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["path", "r", "c"])
def test_a_file_that_is_cut_short_ends_no_process(order, kind, tmp_path):
    """In a process of its own, which the signal SIGBUS would end. A mapping's file is cut short between two reads."""
    path = tmp_path / "x.npy"
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, path, order, kind], capture_output=True, text=True, check=False
    )
    before = "its array of shape (600, 600)" if kind == "path" else "the array that is mapped from it"
    assert (done.returncode, done.stderr.strip()) == (1, f"{path} ends after 500000 bytes, before {before}")


def test_a_part_of_a_mapping_needs_no_more_than_its_own_bytes(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10_000, dtype="f4"))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    source, computed = sources.source_of(mapped[10:1000]), np.asarray(mapped + 1)
    os.truncate(tmp_path / "x.npy", 128 + 4000)
    out = np.empty(990, "f4")
    source.read(out, 0)
    np.testing.assert_array_equal(out, np.arange(10, 1000, dtype="f4"))
    os.truncate(tmp_path / "x.npy", 128 + 3999)
    with pytest.raises(ValueError, match="ends after 4127 bytes"):
        source.read(out, 0)
    assert files.mapping_of(np.ones(3, "f4")) is None
    assert files.mapping_of(computed) is None, "what was computed of it is in memory"
