"""Tests of `highlevel/spark`."""
