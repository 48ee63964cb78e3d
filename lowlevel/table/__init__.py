"""The fixed-size table that turns rows into partials: keys, entries, flushing, sharing."""
