"""Tests of `capture/flows`."""
