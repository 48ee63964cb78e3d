"""Tests of `highlevel/spark/session`."""
