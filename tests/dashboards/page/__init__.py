"""Tests of `dashboards/page`."""
