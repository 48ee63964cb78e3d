"""Tests of `lowlevel`."""
