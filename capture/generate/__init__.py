"""Synthetic captures: disorder, lulls, skew, address pairs and attacks are known because they were asked for.

A `Profile` says what a link looks like, `generate` writes it as a classic pcap file, `three_links` writes the links
of the demo. The file depends on the profile alone, byte for byte.
"""

from capture.generate.attacks import Attack
from capture.generate.links import three_links
from capture.generate.profile import Profile
from capture.generate.write import Summary, generate

__all__ = ["Attack", "Profile", "Summary", "generate", "three_links"]
