"""Tests of `capture/collector`."""
