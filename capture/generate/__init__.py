"""Synthetic captures with specified disorder, lulls, skew, address pairs and attacks.

A `Profile` describes a link, `generate` writes it as a classic pcap file, `three_links` writes the links of the demo.
Equal profiles generate identical files. `generate_from_script` writes the packets of a scapy script.
"""

from capture.generate.attacks import Attack
from capture.generate.conversations import Conversations
from capture.generate.links import three_links
from capture.generate.profile import Profile
from capture.generate.scripts import ScriptSummary, generate_from_script
from capture.generate.write import Summary, generate

__all__ = [
    "Attack",
    "Conversations",
    "Profile",
    "ScriptSummary",
    "Summary",
    "generate",
    "generate_from_script",
    "three_links",
]
