"""Mutants: small changes that make the code wrong, and whether the tests that should see each of them do."""
