"""LaunchConfig: what it refuses, and what every field becomes in the driver's own struct."""

import dataclasses
from types import SimpleNamespace

import pytest
from cuda.bindings import driver as cu

from lowlevel_reduce.driver import (
    AccessPolicyWindow,
    Event,
    LaunchCompletionEvent,
    LaunchConfig,
    ProgrammaticEvent,
    native_config,
)
from lowlevel_reduce.driver.attributes import SCHEDULING, SHARED_MEMORY
from lowlevel_reduce.errors import UnsupportedError

EVENT = Event.from_handle(0x5678)


def test_extents_are_normalised():
    config = LaunchConfig(4, (8, 2))
    assert (config.grid, config.block) == ((4, 1, 1), (8, 2, 1))
    assert (config.grid_blocks, config.block_threads, config.cluster_blocks) == (4, 16, 1)


def test_it_is_frozen_hashable_and_comparable():
    assert LaunchConfig(4, 32) == LaunchConfig((4, 1), (32,))
    assert hash(LaunchConfig(4, 32, cluster=2)) == hash(LaunchConfig(4, 32, cluster=(2, 1, 1)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        LaunchConfig(4, 32).grid = 5
    assert dataclasses.replace(LaunchConfig(4, 32, cluster=2), grid=6).cluster == (2, 1, 1)


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        LaunchConfig(4, 32, 1024)


def test_every_attribute_is_off_by_default():
    native = native_config(LaunchConfig(4, 32))
    assert native.numAttrs == 0
    assert list(native.attrs) == []


@pytest.mark.parametrize(
    ("grid", "block", "options", "text"),
    [
        (0, 32, {}, "grid.x is 1 to 2147483647, not 0"),
        (2**31, 32, {}, "grid.x"),
        ((1, 65536), 32, {}, "grid.y is 1 to 65535, not 65536"),
        ((1, 1, 65536), 32, {}, "grid.z"),
        ((1, 1, 1, 1), 32, {}, "one to three"),
        ((), 32, {}, "one to three"),
        (1, 0, {}, "block.x"),
        (1, -1, {}, "block.x"),
        (1, 1025, {}, "1024"),
        (1, (512, 3), {}, "1536 threads"),
        (1, (1, 1, 65), {}, "block.z is 1 to 64, not 65"),
        (1, 32, {"dynamic_shared_bytes": -1}, "dynamic_shared_bytes"),
        (6, 32, {"cluster": 4}, "grid (6, 1, 1) is not a multiple of cluster (4, 1, 1)"),
        ((8, 3), 32, {"cluster": (1, 2)}, "is not a multiple"),
        (32, 32, {"cluster": 17}, "cluster.x is 1 to 16, not 17"),
        ((8, 8), 32, {"cluster": (8, 4)}, "32 blocks; at most 16"),
        (32, 32, {"cluster": 0}, "cluster.x"),
        (8, 32, {"preferred_cluster": 4}, "only beside a cluster"),
        (24, 32, {"cluster": 2, "preferred_cluster": 3}, "is not a multiple of cluster"),
        ((4, 1, 4), 32, {"cluster": 2, "preferred_cluster": (2, 1, 2)}, "differ in z"),
        (6, 32, {"cluster": 2, "preferred_cluster": 4}, "grid (6, 1, 1) is not a multiple of preferred_cluster"),
        (8, 32, {"cluster_scheduling": "wide"}, "'spread'"),
        (8, 32, {"memory_sync_domain": "local"}, "'remote'"),
        (8, 32, {"memory_sync_domain_map": (0, 256)}, "0 to 255"),
        (8, 32, {"priority": 2**31}, "priority"),
        (8, 32, {"shared_memory_carveout": 101}, "0 to 100, not 101"),
        (8, 32, {"shared_memory_carveout": -1}, "0 to 100"),
        (8, 32, {"portable_cluster_size_mode": "yes"}, "'allow_non_portable'"),
        (8, 32, {"shared_memory_mode": 1}, "'prefer_oversized'"),
    ],
)
def test_refuses_values(grid, block, options, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below, unescaped
        LaunchConfig(grid, block, **options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "options"),
    [
        (1.0, {}),
        (True, {}),
        ("8", {}),
        (8, {"cooperative": 1}),
        (8, {"programmatic_stream_serialization": None}),
        (8, {"device_updatable": "no"}),
        (8, {"nvlink_centric_scheduling": 1}),
        (8, {"priority": 0.5}),
        (8, {"memory_sync_domain_map": 1}),
        (8, {"programmatic_event": 5}),
        (8, {"launch_completion_event": ProgrammaticEvent(EVENT)}),
        (8, {"access_policy_window": (0, 1)}),
    ],
)
def test_refuses_types(grid, options):
    with pytest.raises(TypeError):
        LaunchConfig(grid, 32, **options)


def test_the_window_and_the_events_are_checked():
    for options in ({"hit_ratio": 1.5}, {"hit_ratio": -0.1}, {"hit": "keep"}, {"miss": "persisting"}, {"pointer": -1}):
        with pytest.raises(ValueError, match=r"hit|miss|pointer"):
            AccessPolicyWindow(**{"pointer": 0, "size_bytes": 4, **options})
    timed = Event.from_handle(1)
    timed._timing = True
    for kind in (ProgrammaticEvent, LaunchCompletionEvent):
        with pytest.raises(ValueError, match="without timing"):
            kind(timed)
        with pytest.raises(TypeError):
            kind(0x5678)


# Field, value, number of the attribute, and the value read back from the native struct.
ROWS = [
    (
        "access_policy_window",
        AccessPolicyWindow(0x7000, 4096, 0.25, "streaming", "normal"),
        1,
        lambda v: (
            int(v.accessPolicyWindow.base_ptr),
            v.accessPolicyWindow.num_bytes,
            v.accessPolicyWindow.hitRatio,
            int(v.accessPolicyWindow.hitProp),
            int(v.accessPolicyWindow.missProp),
        ),
        (0x7000, 4096, 0.25, 1, 0),
    ),
    ("cooperative", True, 2, lambda v: v.cooperative, 1),
    ("cluster", (2, 3, 1), 4, lambda v: (v.clusterDim.x, v.clusterDim.y, v.clusterDim.z), (2, 3, 1)),
    ("cluster_scheduling", "default", 5, lambda v: int(v.clusterSchedulingPolicyPreference), 0),
    ("cluster_scheduling", "spread", 5, lambda v: int(v.clusterSchedulingPolicyPreference), 1),
    ("cluster_scheduling", "load_balancing", 5, lambda v: int(v.clusterSchedulingPolicyPreference), 2),
    ("programmatic_stream_serialization", True, 6, lambda v: v.programmaticStreamSerializationAllowed, 1),
    (
        "programmatic_event",
        ProgrammaticEvent(EVENT, trigger_at_block_start=True),
        7,
        lambda v: (
            int(v.programmaticEvent.event),
            v.programmaticEvent.flags,
            v.programmaticEvent.triggerAtBlockStart,
        ),
        (0x5678, 0, 1),
    ),
    (
        "programmatic_event",
        EVENT,
        7,
        lambda v: (int(v.programmaticEvent.event), v.programmaticEvent.flags),
        (0x5678, 0),
    ),
    ("priority", -3, 8, lambda v: v.priority, -3),
    ("priority", 0, 8, lambda v: v.priority, 0),
    ("memory_sync_domain_map", (1, 3), 9, lambda v: (v.memSyncDomainMap.default_, v.memSyncDomainMap.remote), (1, 3)),
    ("memory_sync_domain", "remote", 10, lambda v: int(v.memSyncDomain), 1),
    ("memory_sync_domain", "default", 10, lambda v: int(v.memSyncDomain), 0),
    ("launch_completion_event", EVENT, 12, lambda v: int(v.launchCompletionEvent.event), 0x5678),
    (
        "launch_completion_event",
        LaunchCompletionEvent(EVENT),
        12,
        lambda v: (int(v.launchCompletionEvent.event), v.launchCompletionEvent.flags),
        (0x5678, 0),
    ),
    ("device_updatable", True, 13, lambda v: v.deviceUpdatableKernelNode.deviceUpdatable, 1),
    ("shared_memory_carveout", 40, 14, lambda v: v.sharedMemCarveout, 40),
    ("shared_memory_carveout", 0, 14, lambda v: v.sharedMemCarveout, 0),
    ("nvlink_centric_scheduling", True, 16, lambda v: v.nvlinkUtilCentricScheduling, 1),
    ("portable_cluster_size_mode", "require_portable", 17, lambda v: int(v.portableClusterSizeMode), 1),
    ("portable_cluster_size_mode", "allow_non_portable", 17, lambda v: int(v.portableClusterSizeMode), 2),
    ("shared_memory_mode", "require_portable", 18, lambda v: int(v.sharedMemoryMode), 1),
    ("shared_memory_mode", "allow_non_portable", 18, lambda v: int(v.sharedMemoryMode), 2),
    ("shared_memory_mode", "allow_oversized", 18, lambda v: int(v.sharedMemoryMode), 3),
    ("shared_memory_mode", "prefer_oversized", 18, lambda v: int(v.sharedMemoryMode), 4),
]
KNOWN = {int(identity) for identity in cu.CUlaunchAttributeID}


def is_known(field, value):
    """Whether the bindings have this mode of an attribute: the last two of shared memory came after the attribute."""
    return field != "shared_memory_mode" or hasattr(cu.CUsharedMemoryMode, SHARED_MEMORY[value])


@pytest.mark.parametrize(
    ("field", "value", "number", "read", "expected"), ROWS, ids=lambda v: None if callable(v) else str(v)[:32]
)
def test_an_attribute_in_the_native_struct(field, value, number, read, expected):
    config = LaunchConfig((8, 9), 32, **{field: value})
    if number not in KNOWN:
        with pytest.raises(
            UnsupportedError, match=rf"{field} needs cuda-bindings 13\.\d; installed is cuda-bindings 1"
        ):
            native_config(config)
        return
    if not is_known(field, value):
        with pytest.raises(UnsupportedError, match="SHARED_MEMORY needs newer bindings; installed is cuda-b"):
            native_config(config)
        return
    native = native_config(config)
    assert native.numAttrs == 1
    (attribute,) = native.attrs
    assert int(attribute.id) == number
    assert read(attribute.value) == expected


def test_a_value_that_the_bindings_do_not_know(monkeypatch):
    monkeypatch.setitem(SCHEDULING, "spread", "CU_CLUSTER_SCHEDULING_POLICY_OF_TOMORROW")
    with pytest.raises(UnsupportedError, match="POLICY_OF_TOMORROW needs newer bindings; installed is cuda-bindings 1"):
        native_config(LaunchConfig(2, 32, cluster=2, cluster_scheduling="spread"))


def test_the_preferred_cluster_comes_beside_the_cluster():
    native = native_config(LaunchConfig((8, 4), 32, cluster=2, preferred_cluster=(4, 2)))
    assert [int(attribute.id) for attribute in native.attrs] == [4, 11]
    preferred = native.attrs[1].value.preferredClusterDim
    assert (preferred.x, preferred.y, preferred.z) == (4, 2, 1)


def test_every_number_that_the_bindings_know_has_a_field():
    tested = {number for _, _, number, _, _ in ROWS} | {11}
    stream_only = {0, 3}  # IGNORE, and SYNCHRONIZATION_POLICY
    assert KNOWN - tested == stream_only


def test_all_attributes_at_once():
    options = {
        field: value
        for field, value, number, _, _ in ROWS
        if number in KNOWN and number != 4 and is_known(field, value)
    }
    native = native_config(LaunchConfig((8, 9), 32, cluster=2, preferred_cluster=4, **options))
    numbers = [int(attribute.id) for attribute in native.attrs]
    assert sorted(numbers) == sorted(KNOWN - {0, 3})
    assert native.numAttrs == len(numbers)


def test_the_dimensions_and_the_stream():
    native = native_config(LaunchConfig((5, 6, 7), (8, 9, 2), dynamic_shared_bytes=512), 0x99)
    assert (native.gridDimX, native.gridDimY, native.gridDimZ) == (5, 6, 7)
    assert (native.blockDimX, native.blockDimY, native.blockDimZ) == (8, 9, 2)
    assert (native.sharedMemBytes, int(native.hStream)) == (512, 0x99)


def test_the_attribute_list_is_copied_at_assignment():
    # Why native_config assigns a complete list, once: a later append is not seen, and a later read is a copy.
    struct = cu.CUlaunchAttribute()
    struct.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    native = cu.CUlaunchConfig()
    attributes = [struct]
    native.attrs = attributes
    attributes.append(cu.CUlaunchAttribute())
    native.numAttrs = 1
    assert len(native.attrs) == 1


def device(**facts):
    facts = {
        "name": "Old GPU",
        "architecture": "sm_70",
        "supports_clusters": True,
        "supports_cooperative_launch": True,
        "max_threads_per_block": 1024,
        "shared_memory_per_block_optin_bytes": 98304,
        "attribute": lambda name: 4,
        **facts,
    }
    return SimpleNamespace(**facts)


@pytest.mark.parametrize(
    ("facts", "options", "text"),
    [
        ({"supports_clusters": False}, {"cluster": 2}, r"Old GPU \(sm_70\) has no thread-block clusters"),
        ({"supports_cooperative_launch": False}, {"cooperative": True}, "no cooperative launch"),
        ({"max_threads_per_block": 16}, {}, "16 threads a block, not 32"),
        ({}, {"dynamic_shared_bytes": 98305}, "98304 bytes of shared memory a block, not 98305"),
        ({}, {"memory_sync_domain_map": (0, 4)}, "4 memory synchronisation domains"),
        ({}, {"access_policy_window": AccessPolicyWindow(0, 5)}, "windows of 4 bytes, not 5"),
    ],
)
def test_a_device_that_lacks_it(facts, options, text):
    with pytest.raises(UnsupportedError, match=text):
        LaunchConfig(2, 32, **options).check_device(device(**facts))


def test_a_device_that_has_it_all():
    LaunchConfig(2, 32, cluster=2, cooperative=True, dynamic_shared_bytes=98304).check_device(device())
