"""Pages that are filled from measured files, and checked against them."""
