"""The filter join: keeps rows whose key was seen before on the same link, in fixed memory."""
