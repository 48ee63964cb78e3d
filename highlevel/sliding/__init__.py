"""Sliding and tumbling windows over time: window IDs, merge buffers, the operator."""
