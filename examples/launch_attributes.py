"""Print every launch attribute of the driver, and its observed effect on this device.

Each row is a demonstration that has just run: kernels of cuda_src/study report where and when their blocks ran.
``python -m lowlevel_reduce attributes`` prints the same as a table or as JSON.
"""

from __future__ import annotations

from _device import any_device

import lowlevel_reduce as lr
from lowlevel_reduce.study.attributes import rows


def main() -> None:
    """Print two lines for each attribute."""
    with any_device(), lr.Context.primary() as context:
        for row in rows(context):
            supported = "" if row["supported"] else ", lacking here"
            print(f"{row['id']:>2} {row['name']} ({row['field']}, since {row['since']}{supported})")
            print(f"   {row['observed']}")


if __name__ == "__main__":
    main()
