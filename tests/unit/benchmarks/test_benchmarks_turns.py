"""Turns: who begins each round, who has one turn, and who raises."""

from benchmarks.measure.turns import in_turn


def test_each_round_begins_with_another_one_and_who_fails_has_no_more_turns():
    order = []

    def taker(name, fails_at=None):
        def take():
            order.append(name)
            if order.count(name) == fails_at:
                raise RuntimeError("lost")
            return float(len(order))

        return take

    failed = {"d": {"error": "ReduceError: wrong"}}
    takers = {"a": taker("a"), "d": taker("d"), "b": taker("b", fails_at=2), "c": taker("c")}
    samples = in_turn(takers, 4, failed, once=["c"])
    assert order == ["a", "b", "c", "b", "a", "a", "a"]
    assert samples == {"a": [1.0, 5.0, 6.0, 7.0], "c": [3.0]}
    assert failed["b"] == {"error": "RuntimeError: lost"}
