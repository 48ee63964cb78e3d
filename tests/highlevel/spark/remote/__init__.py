"""Tests of `highlevel/spark/remote`."""
