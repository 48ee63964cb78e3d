"""Expressions over columns: the tree, its types, and its evaluation over batches."""
