"""Tests of `capture/live`."""
