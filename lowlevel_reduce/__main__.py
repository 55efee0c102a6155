"""``python -m lowlevel_reduce``."""

import sys

from lowlevel_reduce.cli import main

if __name__ == "__main__":
    sys.exit(main())
