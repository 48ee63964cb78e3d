"""Tests of `highlevel/results`."""
