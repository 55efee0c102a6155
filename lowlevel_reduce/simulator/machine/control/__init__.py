"""Which threads execute what next: decoding, warps, barriers, calls, and how a launch ends."""
