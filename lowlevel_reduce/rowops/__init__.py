"""Row operations: a row is read once, reduced by the one tree, and written back through an expression."""
