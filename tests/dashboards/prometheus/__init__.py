"""Tests of `dashboards/prometheus`."""
