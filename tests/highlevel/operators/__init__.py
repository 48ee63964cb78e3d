"""Tests of `highlevel/operators`."""
