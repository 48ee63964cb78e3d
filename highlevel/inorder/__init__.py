"""In-order window aggregation, as systems without progress of their own have it: what the experiments compare with."""
