"""Golden results: hashes of what the tree gives, over operators, types and layouts, and their cases."""
