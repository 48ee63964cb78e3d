"""Tests of `dashboards/deployment`."""
