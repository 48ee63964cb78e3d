"""Several datagrams in one input, each after its length in two bytes, so that one can affect the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def chunks(data: bytes) -> Iterator[bytes]:
    """Split an input into datagrams. The last one may be shorter than its length field."""
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def joined(datagrams: Iterable[bytes]) -> bytes:
    """An input of datagrams."""
    return b"".join(len(each).to_bytes(2, "big") + each for each in datagrams)
