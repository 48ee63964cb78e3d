"""The low level: it reads rows, pre-aggregates them in tables of fixed size, and returns partials and punctuation."""
