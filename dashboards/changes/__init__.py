"""Results with corrections in a pipeline: the change log of a query, its results so far, and its final rows.

micro-batch ──► output/QUERY/part-N.parquet: changes ──► results so far ──► gauges, page, alerts
                                │                                      └──► output/FINAL/part-N.parquet: final rows
                                └──► `wiretide compact` ──► one table
"""
