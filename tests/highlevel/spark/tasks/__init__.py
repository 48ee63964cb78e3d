"""Tests of `highlevel/spark/tasks`."""
