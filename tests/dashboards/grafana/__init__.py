"""Tests of `dashboards/grafana`."""
