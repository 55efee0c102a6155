"""Arrays in parts: over processes and hosts, and larger than the device, with the bits of one array on one GPU."""
