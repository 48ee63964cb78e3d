"""Tests of `queries/pipeline`."""
