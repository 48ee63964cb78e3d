"""Kinds of windows: their definitions, and their properties for the two levels."""
