// Instructions about the launch as a whole: programmatic dependent launch, what may be read ahead of it, the grid and the device.
#pragma once
#include "base/types.cuh"

// Returns once every kernel that this launch depends on has completed and its writes are visible. Must come before the first
// read or write of memory that such a kernel touches. Has no effect in a launch without the programmatic attribute.
__device__ __forceinline__ void wait_for_prerequisites()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets a dependent launch be scheduled once every block has called this or exited; it still waits for this kernel's writes.
__device__ __forceinline__ void launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Prefetches into the L2 every 16-byte block that lies wholly within these bytes. The kernel sees no value, and later writes
// update the L2's copy, so this may come before wait_for_prerequisites.
__device__ __forceinline__ void prefetch_l2(const char* address, uint32 bytes)
{
#if __CUDA_ARCH__ >= 900
    const uint32 skipped = -uint32(reinterpret_cast<uint64>(address)) % 16, whole = (bytes - skipped) / 16 * 16;
    if (bytes >= skipped + 16)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(address + skipped), "r"(whole));
#endif
}

// blockIdx.x, which the compiler takes for another number: what follows from it is computed anew instead of kept in registers.
__device__ __forceinline__ uint32 block_anew()
{
    uint32 number;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(number));
    return number;
}

// The same for a word of a kernel's argument.
__device__ __forceinline__ uint64 word_anew(uint64 word)
{
    asm volatile("" : "+l"(word));
    return word;
}

// The number of multiprocessors of the device, or somewhat more.
__device__ __forceinline__ uint32 multiprocessors()
{
    uint32 n;
    asm("mov.u32 %0, %%nsmid;" : "=r"(n));
    return n;
}
