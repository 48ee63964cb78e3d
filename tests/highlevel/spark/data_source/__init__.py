"""Tests of `highlevel/spark/data_source`."""
