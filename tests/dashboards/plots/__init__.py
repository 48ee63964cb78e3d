"""Tests of `dashboards/plots`."""
