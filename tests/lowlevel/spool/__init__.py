"""Tests of `lowlevel/spool`."""
