"""The live page of a pipeline: a store of closed windows; stored windows as events, charts and tables."""
