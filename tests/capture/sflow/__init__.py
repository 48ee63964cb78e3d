"""Tests of `capture/sflow`."""
