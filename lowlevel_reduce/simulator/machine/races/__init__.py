"""The order of memory accesses, and the races where there is none."""
