"""What instructions compute: values, formats and conversions, as functions of NumPy arrays."""
