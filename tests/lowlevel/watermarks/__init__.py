"""Tests of `lowlevel/watermarks`."""
