"""Arrays in parts: chunks, their partials, and what folds these."""
