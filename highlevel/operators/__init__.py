"""The Operator contract, and the operators of windows that do not slide over time."""
