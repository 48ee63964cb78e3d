"""Tests of `highlevel/plan`."""
