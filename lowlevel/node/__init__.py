"""The low-level node of one link: one pass over its blocks feeds every query."""
