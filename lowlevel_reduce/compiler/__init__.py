"""CUDA C++ to cubin: sources, NVRTC, the disk cache, prebuilt kernels, and the resources that every kernel uses.

>>> from lowlevel_reduce.compiler import Program, compile_program
>>> cubin = compile_program(Program("one", 'extern "C" __global__ void one(int* x) { *x = 1; }'), "sm_90")
>>> cubin.kernels["one"].spill_store_bytes
0

The architecture is an argument, because this layer uses neither a device nor a driver. Importing it loads no CUDA
library, and a process whose kernels are all in the cache never loads the compiler.
"""

from lowlevel_reduce.compiler.cache import DiskCache, Entry, open_cache, open_prebuilt, prebuilt_at
from lowlevel_reduce.compiler.installed import installed_kernels
from lowlevel_reduce.compiler.nvrtc import DEFAULT_OPTIONS, supported_architectures, version
from lowlevel_reduce.compiler.program import (
    Cubin,
    Output,
    Program,
    compile_many,
    compile_program,
    is_known_to_spill,
    stored_in,
)
from lowlevel_reduce.compiler.resources import Resources
from lowlevel_reduce.compiler.sources import SourceTree, source_root

__all__ = [
    "DEFAULT_OPTIONS",
    "Cubin",
    "DiskCache",
    "Entry",
    "Output",
    "Program",
    "Resources",
    "SourceTree",
    "compile_many",
    "compile_program",
    "installed_kernels",
    "is_known_to_spill",
    "open_cache",
    "open_prebuilt",
    "prebuilt_at",
    "source_root",
    "stored_in",
    "supported_architectures",
    "version",
]
