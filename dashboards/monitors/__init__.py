"""Long-running commands put together: pipeline, low-level node, collector."""
