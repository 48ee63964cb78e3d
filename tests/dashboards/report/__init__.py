"""Tests of `dashboards/report`."""
