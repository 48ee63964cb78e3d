"""Tests of `queries/explain`."""
