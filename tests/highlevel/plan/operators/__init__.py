"""Tests of `highlevel/plan/operators`."""
