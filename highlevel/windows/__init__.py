"""Kinds of windows: what each holds, by definition, and what the levels need to know of it."""
