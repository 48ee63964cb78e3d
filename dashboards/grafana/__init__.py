"""Dashboards for Grafana, and the files that Grafana and Prometheus need to show them."""
