"""A report about captures: one HTML document with plots and tables.

record times ──► disorder and lulls ──┐
inputs ──► ready queries in one pass ─┴► sections ──► dashboards.plots.document
"""
