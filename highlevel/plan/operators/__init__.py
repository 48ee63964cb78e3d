"""The operators of plan nodes, one module each."""
