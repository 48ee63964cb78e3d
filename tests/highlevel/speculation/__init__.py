"""Tests of `highlevel/speculation`."""
