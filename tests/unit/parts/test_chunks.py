"""How arrays are cut into chunks and shards: every element once, whole chunks, shares alike."""

import pytest

from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.parts.chunks import check_chunk, chunk_elements, common_chunk, shard_lengths

LENGTHS = [0, 1, 1023, 1024, 1025, 1 << 20, (1 << 20) + 1, 10**8, 10**9 + 7, 1 << 36]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
def test_an_array_has_up_to_1024_chunks_and_more_than_half_as_many_if_it_is_large(length, dtype):
    chunk, leaf = chunk_elements(length, dtype), element_type(dtype).leaf
    assert check_chunk(chunk, element_type(dtype)) == chunk
    assert -(-length // chunk) <= 1024
    assert chunk == leaf or -(-length // (chunk // 2)) > 1024


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shards", [1, 2, 3, 7, 8])
def test_shards_are_whole_chunks_and_alike(length, shards):
    chunk = chunk_elements(length, "float32")
    lengths = shard_lengths(length, "float32", shards)
    assert (len(lengths), sum(lengths)) == (shards, length)
    counts = [-(-each // chunk) for each in lengths]
    assert max(counts) - min(counts) <= 1
    filled = [each for each in lengths if each]
    assert all(each % chunk == 0 for each in filled[:-1])
    assert common_chunk(lengths, "float32") == chunk
    assert shard_lengths(length, "float32", shards, chunk=1 << 40 if length == 0 else chunk) == lengths


def test_shards_of_other_lengths_have_the_largest_chunk_that_divides_them():
    leaf = 1024
    assert common_chunk([6 * leaf, 4 * leaf, 5], "float32") == leaf  # no more than chunk_elements
    assert common_chunk([1 << 24, 3 << 22, 5 << 20, 7], "float32") == 1 << 16
    assert common_chunk([(1 << 24) + 3 * leaf, 1 << 24, 7], "float32") == leaf
    assert common_chunk([5, 0, 0], "float32") == leaf
    with pytest.raises(ValueError, match="shard 1 has 5 elements, which end within a leaf of 1024"):
        common_chunk([leaf, 5, 0, leaf], "float32")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((-1, "float32", 2), ValueError, "not -1 elements"),
        ((MAX_BYTES, "float32", 2), ValueError, "bytes"),
        ((10, "float32", 0), ValueError, "shards is 1 to 1048576, not 0"),
        ((10, "float32", 2**31), ValueError, "shards is 1 to 1048576, not 2147483648"),
        ((10.0, "float32", 2), TypeError, "length is an integer"),
        ((10, "float32", True), TypeError, "shards is an integer"),
        ((10, "int7", 2), TypeError, "int7"),
    ],
)
def test_numbers_that_make_no_sense(arguments, error, words):
    with pytest.raises(error, match=words):
        shard_lengths(*arguments)
