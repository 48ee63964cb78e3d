"""Tests of `lowlevel/watch`."""
