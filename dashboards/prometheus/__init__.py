"""Metrics for Prometheus over HTTP: the last final window of each query, and counters."""
