"""Tests of `capture/generate`."""
