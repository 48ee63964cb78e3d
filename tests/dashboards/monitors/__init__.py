"""Tests of `dashboards/monitors`."""
