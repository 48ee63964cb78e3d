"""From syntax trees to plans: the nodes of each query, and what other queries see of it."""
