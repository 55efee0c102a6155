"""Measurements on a real GPU; nothing here is imported by the library or asserted by its tests."""
