"""Results and counters for people: Prometheus, pages, tables."""
