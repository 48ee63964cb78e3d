"""Tests of `highlevel/baselines`."""
