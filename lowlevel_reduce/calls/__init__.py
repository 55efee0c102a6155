"""One call: described, prepared, executed."""
