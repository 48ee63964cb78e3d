"""Target `pcap`: files of classic pcap, of every byte order, unit, version and record header."""

from __future__ import annotations

from random import Random

from tests.fuzz.record_files import check_file as check
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_frames import random_frame

__all__ = ["check", "seeds"]


def seeds() -> dict[str, bytes]:
    """A few records in each form, one file that holds another, and one cut in its last record."""
    random = Random(2)

    def records(count: int = 3) -> list[tuple[int, bytes]]:
        return [(random.randrange(2**32 * 10**9), random_frame(random, 1)[0][:90]) for _ in range(count)]

    made = {
        f"{'little' if order == '<' else 'big'}-{number}": pcap_bytes(records(), order=order, **options)
        for order in "<>"
        for number, options in enumerate(
            [{}, {"nanoseconds": False}, {"modified": True}, {"version": (2, 2)}, {"version": (2, 3)}]
        )
    }
    made["empty"] = pcap_bytes([])
    made["nested"] = pcap_bytes([(5, pcap_bytes(records(2))), (6, b"")])
    made["cut"] = pcap_bytes(records())[:-5]
    made["many"] = pcap_bytes([(number, b"\x45" + bytes(number % 40)) for number in range(60)], 101)
    return made
