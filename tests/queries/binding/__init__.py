"""Tests of `queries/binding`."""
