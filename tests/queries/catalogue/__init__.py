"""Tests of `queries/catalogue`."""
