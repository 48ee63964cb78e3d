"""Run the operators of the plans in Spark's tasks, and move their rows between partitions."""
