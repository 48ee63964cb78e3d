"""Tests of `lowlevel/node`."""
