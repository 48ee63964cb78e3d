"""Tests of `highlevel`."""
