"""Target `pcapng`: files of sections, interfaces and packet blocks."""

from __future__ import annotations

from random import Random

from tests.fuzz.record_files import check_file as check
from tests.references.pcapng_bytes import custom, enhanced, interface, obsolete, section, simple
from tests.references.random_frames import random_frame

__all__ = ["check", "seeds"]


def seeds() -> dict[str, bytes]:
    """Both byte orders, several sections and interfaces, every kind of packet block, clocks of every kind."""
    random = Random(3)

    def frame(link_type: int = 1) -> bytes:
        return random_frame(random, link_type)[0][:80]

    made = {}
    for order, name in (("<", "little"), (">", "big")):
        head = section(order) + interface(1, order, name="eth0") + interface(101, order, resolution=9, offset=3)
        packets = enhanced(10**15, frame(), order) + enhanced(10**18, frame(101), order, number=1)
        made[f"{name}-enhanced"] = head + packets + custom(order) + enhanced(5, frame(), order, wire=1500)
        made[f"{name}-old"] = head + obsolete(7, frame(), order) + simple(frame(), order, wire=99)
        made[f"{name}-snaplen"] = section(order) + interface(1, order, snaplen=40) + simple(frame(), order, wire=2000)
        for resolution in (0, 3, 12, 0x80, 0x8A, 0xBF):
            clock = interface(1, order, resolution=resolution, offset=random.choice([None, -5, 10**9]))
            made[f"{name}-clock-{resolution}"] = section(order) + clock + enhanced(2**40 + 12345, frame(), order)
    made["sections"] = made["little-enhanced"] + made["big-old"] + made["little-old"]
    made["cut"] = made["little-enhanced"][:-7]
    made["no-interface"] = section() + enhanced(5, frame())
    return made
