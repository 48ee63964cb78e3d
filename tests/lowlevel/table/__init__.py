"""Tests of `lowlevel/table`."""
