"""Print every launch attribute of the driver, and what it was seen to do on this device.

Each row is a demonstration that ran just now: kernels of cuda_src/study that report where and when their blocks ran.
``python -m lowlevel_reduce attributes`` prints the same as a table or as JSON.
"""

from __future__ import annotations

from _device import any_device

import lowlevel_reduce as lr
from lowlevel_reduce.study.attributes import rows


def main() -> None:
    """Print two lines an attribute."""
    with any_device(), lr.Context.primary() as context:
        for row in rows(context):
            supported = "" if row["supported"] else ", lacking here"
            print(f"{row['id']:>2} {row['name']} ({row['field']}, since {row['since']}{supported})")
            print(f"   {row['observed']}")


if __name__ == "__main__":
    main()
