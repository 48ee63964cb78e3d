"""Tests of `highlevel/inline`."""
