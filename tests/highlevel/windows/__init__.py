"""Tests of `highlevel/windows`."""
