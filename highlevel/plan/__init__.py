"""A query as a graph of nodes, its fragments, and the pipeline that runs it."""
