"""Tests of `queries/plans`."""
