"""Tests of `highlevel/spark/run_folder`."""
