"""Tests of `highlevel/compare`."""
