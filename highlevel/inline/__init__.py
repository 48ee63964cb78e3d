"""The inline engine: captures in, results out, in this process."""
