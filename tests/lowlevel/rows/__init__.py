"""Tests of `lowlevel/rows`."""
