"""The spool: numbered, immutable, checksummed files of partials and punctuation between the two levels."""
