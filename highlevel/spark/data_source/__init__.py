"""The data source `wiretide` for Spark users: captures and queries as DataFrames and streams."""
