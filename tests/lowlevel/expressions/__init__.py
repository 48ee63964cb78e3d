"""Tests of `lowlevel/expressions`."""
