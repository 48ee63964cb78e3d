"""The low level: rows are pre-aggregated in tables of fixed size; partials and punctuation leave."""
