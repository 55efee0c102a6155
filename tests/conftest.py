"""For all tests: hypothesis without a deadline, since no test here asserts a time."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
