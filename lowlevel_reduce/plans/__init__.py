"""Plans: a problem and its strategy as compiled kernels, and launches that are bound to a stream."""
