"""The soak: all fuzzers with many trials each, counted, and written to docs/reliability.md."""
