"""Demonstrations: what the driver's launch attributes do, observed on the device at hand."""
