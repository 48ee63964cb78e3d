"""IEEE 802.11 frames, and the headers that a monitor interface puts before them.

What is followed: data frames with three or four addresses, QoS and HT control fields, the first subframe of an
A-MSDU, radiotap, Prism and AVS headers, and the padding that some cards leave behind the header (radiotap's flag
"datapad"). A protected frame is ciphertext even where a card has deciphered it, a later fragment begins with no
header, and a frame check sequence at the end is behind what IP says: none of them is read. Mesh control fields are
**not** followed.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16le, u32be, u32le
from capture.native import helper
from capture.packets.states import AT_LLC, AT_WLAN, AT_WLAN_PADDED, NON_IP

PRISM_HEADER = 144
AVS_MAGIC = 0x80211000
"""First four bytes of an AVS header but for the version in the last nibble."""


@helper
def after_radiotap(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the radiotap header at `at` (radiotap.org: its fields are aligned)."""
    if at + 8 > end:
        return NON_IP, at
    behind = at + u16le(buf, at + 2)
    if behind < at + 8 or behind > end:
        return NON_IP, at
    present = u32le(buf, at + 4)
    field = at + 8
    more = present
    while more >> 31 and field + 4 <= behind:
        more = u32le(buf, field)
        field += 4
    if present & 1:  # TSFT, eight bytes aligned to eight
        field = at + (field - at + 7 & ~7) + 8
    if present & 2 and field < behind and buf[field] & 0x20:
        return AT_WLAN_PADDED, behind
    return AT_WLAN, behind


@helper
def after_prism(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the Prism header at `at`, or behind the AVS header that drivers put there too."""
    if at + 8 > end:
        return NON_IP, at
    if u32be(buf, at) & 0xFFFFFFF0 == AVS_MAGIC:
        return after_avs(buf, at, end)
    if at + PRISM_HEADER > end:
        return NON_IP, at
    return AT_WLAN, at + PRISM_HEADER


@helper
def after_avs(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the AVS header at `at`, whose second word is its length."""
    if at + 8 > end:
        return NON_IP, at
    length = u32be(buf, at + 4)
    if length < 8 or at + length > end:
        return NON_IP, at
    return AT_WLAN, at + length


@helper
def after_wlan(buf, at, end, padded):  # type: ignore[no-untyped-def]
    """Return (state, offset, offsets of the source and the destination address or -1) behind the 802.11 header."""
    absent = np.int64(-1)
    if at + 24 > end or buf[at] & 3 or buf[at] & 12 not in (0, 8):  # another version, control or extension
        return NON_IP, at, absent, absent
    control = np.int64(buf[at])
    flags = np.int64(buf[at + 1])
    both = flags & 3 == 3  # to and from the distribution system: between two access points
    header = np.int64(30 if both else 24)
    if at + header > end:
        return NON_IP, at, absent, absent
    destination = at + 16 if flags & 1 else at + 4
    source = at + 24 if both else at + 16 if flags & 2 else at + 10
    data = control & 12 == 8 and not control & 0x40 and not flags & 0x40  # neither null nor protected
    if not data or buf[at + 22] & 15:  # or a later fragment
        return NON_IP, at, source, destination
    aggregated = False
    if control & 0x80:  # QoS control, and behind it HT control where the order bit says so
        if at + header + 2 > end:
            return NON_IP, at, source, destination
        aggregated = bool(buf[at + header] & 0x80)
        header += 6 if flags & 0x80 else 2
    if padded:
        header = header + 3 & ~3
    at += header
    if aggregated:  # destination, source and length of the first subframe
        if at + 14 > end:
            return NON_IP, at, source, destination
        return AT_LLC, at + 14, at + 6, at
    return AT_LLC, at, source, destination
