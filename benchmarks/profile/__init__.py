"""Single questions about kernels and calls: variants, limits, counters, the ladder, the figures of a page."""
