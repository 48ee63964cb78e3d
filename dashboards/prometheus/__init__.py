"""Metrics over HTTP for Prometheus: the last final window of each query, and counters."""
