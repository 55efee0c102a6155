"""A simulated driver of several devices: their contexts, pools, memory and permissions are apart."""

import pytest
from cuda.bindings import driver as cu

from lowlevel_reduce.simulator import SimulatedDriver

ERROR = cu.CUresult
LOCATION = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE


@pytest.fixture
def driver():
    driver = SimulatedDriver("H200", devices=2)
    driver.cuInit(0)
    return driver


def good(answer):
    assert answer[0] == ERROR.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]


@pytest.fixture
def contexts(driver):
    """A context on each device; that of the second is current."""
    made = []
    for ordinal in (0, 1):
        made.append(good(driver.cuDevicePrimaryCtxRetain(ordinal)))
    good(driver.cuCtxPushCurrent(made[1]))
    return made


def test_devices_have_numbers_and_names_of_their_own(driver):
    assert good(driver.cuDeviceGetCount()) == 2
    uuids = {bytes(good(driver.cuDeviceGetUuid(ordinal)).bytes) for ordinal in (0, 1)}
    assert len(uuids) == 2
    for refused in (driver.cuDeviceGet(2), driver.cuDevicePrimaryCtxRetain(2), driver.cuDeviceGetMemPool(-1)):
        assert refused[0] == ERROR.CUDA_ERROR_INVALID_DEVICE


def test_each_device_has_a_primary_context(driver, contexts):
    assert int(contexts[0]) != int(contexts[1])
    assert int(good(driver.cuCtxGetDevice())) == 1
    good(driver.cuDevicePrimaryCtxRelease(0))
    assert [good(driver.cuDevicePrimaryCtxGetState(ordinal))[1] for ordinal in (0, 1)] == [0, 1]
    assert driver.cuDevicePrimaryCtxRelease(0)[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT


def test_memory_counts_on_its_device(driver, contexts):
    before = good(driver.cuMemGetInfo())[0]
    pointer = good(driver.cuMemAlloc(1000))
    assert good(driver.cuMemGetInfo())[0] == before - 1000
    ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert good(driver.cuPointerGetAttributes(1, [ordinal], pointer)) == [1]
    good(driver.cuCtxPushCurrent(contexts[0]))
    assert good(driver.cuMemGetInfo())[0] == before
    good(driver.cuMemFree(pointer))


def test_a_pool_is_of_one_device(driver):
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type, properties.location.id = LOCATION, 1
    pool = good(driver.cuMemPoolCreate(properties))
    assert driver.cuDeviceSetMemPool(0, pool)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good(driver.cuDeviceSetMemPool(1, pool))
    pools = [int(good(driver.cuDeviceGetMemPool(ordinal))) for ordinal in (0, 1)]
    assert pools[1] == int(pool) != pools[0] == int(good(driver.cuDeviceGetDefaultMemPool(0)))


def test_permission_is_given_and_taken_back_once(driver, contexts):
    assert [good(driver.cuDeviceCanAccessPeer(1, other)) for other in (0, 1)] == [1, 0]
    assert driver.cuCtxEnablePeerAccess(contexts[1], 0)[0] == ERROR.CUDA_ERROR_INVALID_DEVICE
    assert driver.cuCtxEnablePeerAccess(contexts[0], 1)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good((*driver.cuCtxEnablePeerAccess(contexts[0], 0), None))
    assert driver.cuCtxEnablePeerAccess(contexts[0], 0)[0] == ERROR.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    good((*driver.cuCtxDisablePeerAccess(contexts[0]), None))
    assert driver.cuCtxDisablePeerAccess(contexts[0])[0] == ERROR.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED


def test_permission_ends_with_either_context(driver, contexts):
    good((*driver.cuCtxEnablePeerAccess(contexts[0], 0), None))
    good((*driver.cuDevicePrimaryCtxRelease(0), None))
    again = good(driver.cuDevicePrimaryCtxRetain(0))
    assert int(again) == int(contexts[0])
    assert driver.cuCtxDisablePeerAccess(again)[0] == ERROR.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
