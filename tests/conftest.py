"""For all tests: hypothesis without a deadline, since no test here asserts a time; and the switch of tests/gpu."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_addoption(parser):
    parser.addoption(
        "--simulated",
        action="store_true",
        help="where there is a GPU, run tests/gpu on the simulated one too; where there is none, that is done anyway",
    )
