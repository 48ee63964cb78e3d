"""Tests of `queries.translation`."""
