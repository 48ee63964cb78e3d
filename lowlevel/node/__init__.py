"""The low-level node of one link: it reads every block once, for all queries."""
