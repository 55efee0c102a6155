"""Golden results: hashes of what version 1 of the tree gives, over operators, types and layouts, and their cases."""
