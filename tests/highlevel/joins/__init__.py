"""Tests of `highlevel/joins`."""
