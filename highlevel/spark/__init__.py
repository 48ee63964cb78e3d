"""Spark hosts of the operators: the only place that imports pyspark."""
