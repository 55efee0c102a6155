"""Pure: which kernels serve a problem on a device, and with which numbers."""
