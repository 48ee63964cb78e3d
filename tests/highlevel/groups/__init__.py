"""Tests of `highlevel/groups`."""
