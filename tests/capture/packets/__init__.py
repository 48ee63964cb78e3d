"""Tests of `capture/packets`."""
