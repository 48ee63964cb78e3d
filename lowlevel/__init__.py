"""The fixed-size table next to the packets: partials and punctuation out of columns."""
