"""Arrays in and out: NumPy's, other libraries' and ours, and the memory of results."""
