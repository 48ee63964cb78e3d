"""Tests of `highlevel/sliding`."""
