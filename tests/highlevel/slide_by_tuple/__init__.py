"""Tests of `highlevel/slide_by_tuple`."""
