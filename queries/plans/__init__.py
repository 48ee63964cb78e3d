"""From syntax trees to plans: the nodes of each query, and the columns that other queries can read."""
