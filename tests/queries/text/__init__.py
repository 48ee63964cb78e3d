"""Tests of `queries/text`."""
