"""Conformance of the SQL: random queries against DuckDB, and cases with their rows."""
