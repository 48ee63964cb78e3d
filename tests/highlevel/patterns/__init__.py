"""Tests of patterns over disordered streams."""
