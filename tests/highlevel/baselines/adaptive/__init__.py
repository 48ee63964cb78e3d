"""Tests of `highlevel/baselines/adaptive`."""
