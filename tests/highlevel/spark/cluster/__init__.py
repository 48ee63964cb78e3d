"""Tests of `highlevel/spark/cluster`."""
