"""Start and end the Java process of Spark, with its settings."""
