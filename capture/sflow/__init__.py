"""Packet samples: sFlow datagrams, their sampled packets, and the fields that describe the sampling."""
