"""The live page of a pipeline: closed windows in a store, as a stream of events, as charts and as tables."""
