"""Tests of `highlevel/spark/inputs`."""
