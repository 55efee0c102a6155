"""How a measurement is made: cases, contenders, the harness, the clock, and the records of a session."""
