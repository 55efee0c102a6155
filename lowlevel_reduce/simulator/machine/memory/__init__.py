"""Memory in every state space, and what accesses it, at once or later."""
