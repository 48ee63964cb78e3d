"""Tests of `dashboards`."""
