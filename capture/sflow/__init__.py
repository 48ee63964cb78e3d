"""Packet samples: sFlow datagrams, the packets that agents sampled in them, and what they say of the sampling."""
