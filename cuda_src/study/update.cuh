// Device code that changes a node of the graph that it is part of: what device-updatable nodes are for.
#pragma once
#include "base/types.cuh"

// The driver supplies this function when it loads the kernel, as it does with printf: no library has it.
typedef struct CUgraphDeviceUpdatableNode_st* DeviceNode;
extern "C" __device__ int cudaGraphKernelNodeSetParam(DeviceNode node, size_t offset, const void* value, size_t bytes);

// Gives the node another first argument, of 8 bytes. *code becomes 0 or the driver's error.
extern "C" __global__ void study_update(const DeviceNode* node, uint64 value, int* code)
{
    *code = cudaGraphKernelNodeSetParam(*node, 0, &value, sizeof value);
}
