"""Offsets that lie: `check=` refuses them before anything is launched, and names the first that is wrong."""

import numpy as np
import pytest
from placed import assert_same, values

import lowlevel_reduce as lr
from lowlevel_reduce.driver import readback

COUNTS = [3, 40, 700]
"""Offsets that are read as they are, and two numbers that are reduced on the device."""

LENGTH = 2100


def right(count, dtype="int64"):
    return np.linspace(0, LENGTH, count).astype(dtype)


def lies(count):
    """Return wrong offsets by name, each with the place and the words of the message."""
    last = count - 1
    return {
        "past the end": (last, LENGTH + 1, last, f"past the end of the array, which has {LENGTH} elements"),
        "far past the end": (last, 2**31 - 1, last, "past the end"),
        "first past the end": (0, LENGTH + 5, 0, "past the end"),
        "negative": (0, -1, 0, "negative"),
        "most negative": (last // 2, -(2**31), last // 2, "negative"),
        "falls": (last // 2, LENGTH, last // 2 + 1, "they must ascend") if count > 3 else (2, 1000, 2, "must ascend"),
        "falls at the end": (last, 1, last, rf"less than offsets\[{last - 1}\], which is"),
    }


def on_device(offsets, stream):
    return lr.DeviceArray.from_numpy(offsets, stream)


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("count", COUNTS)
def test_the_first_wrong_one_is_named(stream, count, dtype, where):
    x = lr.DeviceArray.from_numpy(values("float32", LENGTH), stream)
    assert (count * np.dtype(dtype).itemsize > readback.MAX_BYTES) == ((count, dtype) == (700, "int64"))
    for name, (place, value, wrong, words) in lies(count).items():
        offsets = right(count, dtype)
        offsets[place] = value
        given = offsets if where == "host" else on_device(offsets, stream)
        with pytest.raises(ValueError, match=words) as caught:
            lr.segmented_reduce(x, given, stream=stream, check=None if where == "host" else True)
        assert str(caught.value).startswith(f"offsets[{wrong}] is {offsets[wrong]}, "), (name, str(caught.value))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("count", [1, 2, *COUNTS])
def test_right_ones_pass_every_check(stream, count, dtype):
    x, offsets = values("float32", LENGTH), right(count, dtype)
    for given in (offsets, on_device(offsets, stream)):
        found = [lr.segmented_reduce(x, given, stream=stream, check=check).numpy() for check in (None, True, False)]
        assert_same(found[1], found[0])
        assert_same(found[2], found[0])


def test_offsets_on_the_device_are_checked_in_every_call(stream):
    """The second call of a kind is known by the arrays' types and shapes, which say nothing of their content."""
    x = lr.DeviceArray.from_numpy(values("float32", LENGTH), stream)
    for _ in range(2):
        lr.segmented_reduce(x, on_device(right(3), stream), stream=stream, check=True)
        with pytest.raises(ValueError, match=r"offsets\[1\] is -1"):
            lr.segmented_reduce(x, on_device(np.array([0, -1, 3]), stream), stream=stream, check=True)
    for count in (600, 1100, 600):  # which are reduced, whatever number was so before
        offsets = right(count)
        offsets[-1] = LENGTH + 1
        with pytest.raises(ValueError, match=rf"offsets\[{count - 1}\] is {LENGTH + 1}"):
            lr.segmented_reduce(x, on_device(offsets, stream), stream=stream, check=True)


def test_equal_offsets_and_both_ends_are_right(stream):
    x = values("float32", 24)
    for offsets in ([0, 0, 24, 24], [24, 24], [0, 24], [5]):
        given = on_device(np.array(offsets, np.int64), stream)
        for each in (offsets, tuple(offsets), given):
            assert lr.segmented_reduce(x, each, stream=stream, check=True).shape == (len(offsets) - 1,)


def test_wrong_offsets_of_no_segments_and_of_no_elements(stream):
    with pytest.raises(ValueError, match=r"offsets\[0\] is 25, past the end"):
        lr.segmented_reduce(values("float32", 24), [25], stream=stream)
    with pytest.raises(ValueError, match=r"offsets\[1\] is 1, past the end of the array, which has 0 elements"):
        lr.segmented_reduce(values("float32", 0), [0, 1], stream=stream)


def test_what_is_not_checked_is_clamped_to_the_array(stream):
    x, wrong = values("float32", 24), np.array([-3, 50], np.int64)
    whole = lr.segmented_reduce(x, [0, 24], stream=stream).numpy()
    assert_same(lr.segmented_reduce(x, on_device(wrong, stream), stream=stream).numpy(), whole)
    assert_same(lr.segmented_reduce(x, wrong, stream=stream, check=False).numpy(), whole)
    falling = np.array([20, 10, 15], np.int64)
    found = lr.segmented_reduce(x, falling, stream=stream, check=False).numpy()
    assert_same(found, np.append(np.float32(0), lr.segmented_reduce(x, [10, 15], stream=stream).numpy()))


def test_a_check_in_a_capture_is_refused(context):
    with lr.Stream.create(context) as stream:
        x = lr.DeviceArray.from_numpy(values("float32", 24), stream)
        offsets = on_device(np.array([0, 24], np.int64), stream)
        out = lr.DeviceArray.empty((1,), "float32", stream)
        lr.segmented_reduce(x, offsets, out=out, stream=stream)
        with (
            pytest.raises(ValueError, match="cannot be checked in a capture, .*: pass check=False"),
            lr.Graph.capture(stream),
        ):
            lr.segmented_reduce(x, offsets, out=out, stream=stream, check=True)
        stream.synchronize()


def test_offsets_of_the_host_that_are_none(stream):
    x = values("float32", 24)
    for offsets in (
        None,
        [0, 1.5],
        [0, None],
        [[0, 1]],
        [[0], [1, 2]],
        [0, 2**63],
        [0, 2**64],
        ["0", "1"],
        [True, False],
    ):
        with pytest.raises(TypeError, match="offsets are integers of 64 bits, in one row"):
            lr.segmented_reduce(x, offsets, stream=stream)
    with pytest.raises(ValueError, match="offsets are empty"):
        lr.segmented_reduce(x, [], stream=stream)
    for check in (1, "yes", 0.0):
        with pytest.raises(TypeError, match="check is a bool"):
            lr.segmented_reduce(x, [0, 1], stream=stream, check=check)
