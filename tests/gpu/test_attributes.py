"""Every launch attribute's row: there, well-formed, and with the effect that the attribute is for."""

import re

import numpy as np
import pytest

from lowlevel_reduce.driver import Context, LaunchConfig, binding
from lowlevel_reduce.driver import attributes as driver_attributes
from lowlevel_reduce.study import timing
from lowlevel_reduce.study.attributes import ATTRIBUTES, rows
from lowlevel_reduce.study.bench import NO_CLOCK, STAMP, Bench
from lowlevel_reduce.study.placement import NO_LAYOUT

pytestmark = pytest.mark.bindings

VERDICT = "(: no difference seen|: the other way round than expected)?"
STEP = r"from one short kernel of a stream to the next, .*: [\d.]+ µs without, [\d.]+ µs "
NUMBERS = [*range(1, 15), 16, 17, 18]  # 15 was never given out
KEYS = ["id", "name", "field", "since", "supported", "observed", "purpose", "measured"]


@pytest.fixture(scope="module")
def table(device):
    with Context.primary(device) as context:
        return {row["id"]: row for row in rows(context)}


@pytest.fixture
def observed(table):
    """Return what a row's attribute was seen to do; skip, with the row's own words, where it is lacking or unseen."""

    def observed(number):
        row = table[number]
        if not row["supported"] or row["observed"] == NO_CLOCK:
            pytest.skip(f"{row['name']}: {row['observed']}")
        return row["observed"]

    return observed


def numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_a_row_for_every_number(table):
    assert list(table) == NUMBERS
    for row in table.values():
        assert list(row) == KEYS
        assert isinstance(row["supported"], bool)
        assert row["observed"]


def test_names_and_numbers_are_the_drivers(table):
    known = {int(one): one.name for one in binding.native().CUlaunchAttributeID}
    for number, row in table.items():
        if number in known:
            assert known[number] == f"CU_LAUNCH_ATTRIBUTE_{row['name']}"
        else:
            assert not row["supported"]
            assert f"needs cuda-bindings {row['since']}" in row["observed"]


def test_fields_and_releases_are_those_of_the_launch_configuration():
    for attribute in ATTRIBUTES:
        if attribute.id == 3:  # of streams
            continue
        name, since, _ = driver_attributes._TABLE[attribute.field]
        assert (attribute.name, attribute.since) == (name, since)


def test_what_the_device_has_is_supported(table, device):
    everywhere = {1, 2, 3, 6, 7, 8, 12, 13, 14} if device.compute_capability >= (9, 0) else {2, 3, 8}
    hopper = {4, 5, 9, 10} if device.compute_capability >= (9, 0) else set()
    for number in everywhere | hopper:
        assert table[number]["supported"], table[number]


def test_a_simulated_device_tells_no_time(table, machine):
    if machine != "simulated":
        pytest.skip("this device has a clock")
    assert {number for number, row in table.items() if row["observed"] == NO_CLOCK} == {1, 3, 6, 7, 8, 9, 10, 12, 14}


def test_nothing_is_left_behind(context, table):
    before = Context.current()
    with Bench(context) as bench, pytest.raises(ValueError, match="allow_non_portable_cluster"):
        bench.where(LaunchConfig(16, 32, cluster=16))
    assert Context.current() == before


def test_cooperative_blocks_meet_and_one_too_many_is_refused(observed, context):
    met, fit, more = numbers(observed(2))
    assert met == context.multiprocessor_count
    assert more == fit + 1
    assert "are refused" in observed(2)


def test_every_block_waits_for_all_others_at_the_grids_barrier(context):
    """In a random order of simulated blocks, too, which the table of all attributes is not made in."""
    blocks = context.multiprocessor_count
    with Bench(context) as bench:
        assert (bench.meet(LaunchConfig(blocks, 32, cooperative=True))["arrived"] == blocks).all()


def test_blocks_see_their_rank(observed):
    assert observed(4).startswith("ranks 0 1 2 3 in clusters of 4;")
    assert "refused unless the kernel allows them" in observed(4)


def test_scheduling_decides_where_clusters_are_laid(observed, context, machine):
    if machine == "simulated":
        assert observed(5) == NO_LAYOUT
        return
    blocks, size = numbers(observed(5))[:2]
    idle, busy = observed(5).split("; ")
    alone = {name: numbers(counts) for name, counts in re.findall(r"(\w+) (\d+/\d+/\d+)", idle)}
    beside = {name: numbers(counts) for name, counts in re.findall(r"(\w+) (\d+/\d+)", busy)}
    assert list(alone) == list(beside) == ["default", "spread", "load_balancing"]
    for used, fullest, under in alone.values():
        assert blocks / fullest <= used <= context.multiprocessor_count
        assert 1 <= under <= size
    assert alone["spread"][2] >= alone["load_balancing"][2]
    assert all(max(counts) <= blocks for counts in beside.values())


def test_a_dependent_begins_before_its_predecessor_ends(observed):
    assert re.match(
        r"the next kernel began \d+ µs before the end of this one, \d+ µs after the end without", observed(6)
    )


def test_an_event_of_a_launch_comes_after_its_blocks_have_begun(observed):
    assert "began after the last block began" in observed(12)


def test_a_kernel_behind_a_programmatic_event_is_seen_however_it_is_launched(observed):
    when = r"(\d+ µs (before|after) the end|is refused \(CUDA_ERROR_\w+\))"
    ways = rf", plain, programmatic, in a graph: {when}, {when}, {when}"
    assert re.fullmatch(
        rf"a kernel behind the event of one which triggers it at once{ways}; whose blocks do as they start{ways}",
        observed(7),
    )


def test_a_launch_of_high_priority_overtakes(observed):
    ahead = [int(count) for count in re.findall(r"(\d+) with priority", observed(8))]
    assert ahead[0] < ahead[1]


@pytest.mark.parametrize(
    ("number", "form"),
    [
        (1, r"\d+ MiB read again after \d+ MiB of others: \d+ ns a load with the window, \d+ ns without" + VERDICT),
        (3, r"processor time of a wait of 20 ms: spin [\d.]+ ms, blocking_sync [\d.]+ ms"),
        (9, STEP + r"mapped to \(0, 1\), [\d.]+ µs mapped to \(0, 0\)" + VERDICT),
        (10, STEP + r"with that in a domain of its own, [\d.]+ µs in the same" + VERDICT),
    ],
)
def test_effects_on_speed_are_measured_with_and_without(observed, number, form):
    assert re.fullmatch(form, observed(number))


def test_a_preferred_cluster_comes_in_the_sizes_asked_for(observed, device):
    sizes = {int(size) for size in re.findall(r"in clusters of (\d+)", observed(11))}
    assert sizes <= {2, 4}
    assert (4 in sizes) == ("no preferred one came" not in observed(11))
    assert (device.compute_capability < (10, 0)) == ("below 10.0" in observed(11))


def test_device_code_gives_an_updatable_node_another_address(observed, machine):
    assert "a launch into a plain stream is refused" in observed(13)
    effect = "has a handle" if machine == "simulated" else "wrote there and not to its own"
    assert effect in observed(13)


def test_the_hint_of_links_is_seen_by_places_and_between_two_devices(observed, machine):
    where, what = observed(16).split("; ", 1)
    assert re.fullmatch(r"16 blocks run with the hint on (the same|\d+) multiprocessors( that .*)?", where)
    if machine == "simulated":
        assert what == "what it is for takes a clock and two GPUs"
    elif "GB/s" in what:
        cell = rf"\d+ / \d+ by \d+ blocks{VERDICT}"
        cells = ", ".join([cell] * 3)
        assert re.fullmatch(
            rf"memory of GPU \d over .*, GB/s with the hint / without: read {cells}; written {cells}", what
        )
    else:
        assert re.fullmatch(r"what it is for needs two GPUs .*, and this process sees \d", what)


def test_a_carveout_decides_how_many_blocks_fit(observed):
    _, few, _, many, _ = numbers(observed(14))
    assert few < many


def test_a_cluster_above_the_portable_size_needs_the_mode(observed):
    assert "require_portable is refused" in observed(17)
    assert "allow_non_portable runs" in observed(17)


def test_most_at_once_counts_blocks_of_one_multiprocessor():
    stamps = np.zeros(5, STAMP)
    stamps["begin"] = [0, 5, 10, 0, 0]
    stamps["end"] = [10, 20, 20, 30, 30]
    stamps["multiprocessor"] = [0, 0, 0, 1, 2]
    assert timing.most_at_once(stamps) == 2


def test_the_command_prints_the_table(machine, table, capsys):
    import json

    from lowlevel_reduce.cli.app import app

    target = ["--device", "simulator"] if machine == "simulated" else []
    app(["attributes", "--json", *target], standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)
    assert [list(row) for row in printed] == [KEYS] * len(NUMBERS)
    assert [(row["id"], row["name"], row["supported"]) for row in printed] == [
        (row["id"], row["name"], row["supported"]) for row in table.values()
    ]
    app(["attributes", *target], standalone_mode=False)
    assert "ACCESS_POLICY_WINDOW" in capsys.readouterr().out
