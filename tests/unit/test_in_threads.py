"""The threads of other tests: what they return and raise does not get lost."""

import threading

import pytest
from in_threads import in_threads


def test_outcomes_come_in_the_order_of_the_works():
    second = threading.Event()

    def first_to_end_last():
        assert second.wait(20), "both run at once"
        return 1

    assert in_threads(first_to_end_last, lambda: second.set() or 2) == [1, 2]


def test_what_a_thread_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda: 1, lambda: 1 / 0)


def test_a_thread_that_does_not_end_is_told_of():
    go_on = threading.Event()
    with pytest.raises(AssertionError, match="not ended after"):
        in_threads(go_on.wait, timeout=0.01)
    go_on.set()
