"""Tests of `capture/files`."""
