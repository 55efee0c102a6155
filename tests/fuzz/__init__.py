"""Attacks as plain functions with a seed and a count, for tests of a second and for the soak of many minutes.

Each returns a `Tally`; what is lost fails the caller. Importing them needs neither a compiler nor a device.
"""
