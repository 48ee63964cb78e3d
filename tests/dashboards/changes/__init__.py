"""Tests of `dashboards/changes`."""
