"""Tests of `queries`."""
