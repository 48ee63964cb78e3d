"""Sinks for the results of a pipeline in other systems: tables of SQL databases, Delta tables, topics of Kafka."""
