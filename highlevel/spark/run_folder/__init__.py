"""The folder of a run of the stream engine: its identity, offsets, state, results and counters."""
