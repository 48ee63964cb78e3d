"""Tests of `dashboards/alerts`."""
