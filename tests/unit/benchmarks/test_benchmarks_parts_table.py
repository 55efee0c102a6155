"""The table of arrays in parts: medians beside torch's own form of each way, and whether the goals are met."""

from benchmarks.profile import parts_table


def test_each_way_is_beside_the_form_of_torch_that_it_takes_the_place_of():
    found = {
        "sum 1000000": {
            "eager": [30.0, 10.0, 20.0],
            "graph": [9.0],
            "plan": [13.0],
            "torch": [10.0],
            "torch graph": [8.0],
        },
        "logsumexp": {"length=": [1.0], "torch": [4.0], "torch graph": [3.0]},
        "shards 16000000": {parts_table.SHARDS: [5.0], "torch": [5.0]},
        f"sum 1000000{parts_table.EARLY}": {"graph": [8.0], "torch graph": [8.0]},
        f"logsumexp{parts_table.EARLY}": {"graph": [1.0], "torch graph": [2.0]},
        "logsumexp, on the host": {"plan": [1.0], "torch": [4.0]},
    }
    rows = parts_table.rows_of(found)
    assert [(row["problem"], row["way"], row["ratio"], row["met"]) for row in rows] == [
        ("sum 1000000", "eager", 2.0, True),
        ("sum 1000000", "graph", 1.125, False),
        ("sum 1000000", "plan", 1.3, False),
        ("logsumexp", "length=", 0.25, True),
        ("shards 16000000", parts_table.SHARDS, 1.0, True),
        ("sum 1000000, early fold", "graph", 1.0, True),
        ("logsumexp, early fold", "graph", 0.5, False),
        ("logsumexp, on the host", "plan", 0.25, True),
    ]
    table = parts_table.table_of(rows).splitlines()
    assert table[2] == "| sum 1000000 | eager | 20.0 | 10.0 | 2.00 | 2.00 | met |"
    assert len(table) == 2 + len(rows)
