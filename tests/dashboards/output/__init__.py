"""Tests of `dashboards/output`."""
