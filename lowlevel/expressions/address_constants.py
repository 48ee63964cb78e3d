"""Address and network constants of a query, as integers of 32 or 128 bits."""

from capture.lazy_dataclasses import dataclass

WIDTH = {4: 32, 6: 128}
"""Bits of an address by IP version."""


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address: version 4 or 6, and its value as one integer."""

    version: int
    value: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A network: all addresses of `version` whose first `length` bits are equal to those of `value`."""

    version: int
    value: int
    length: int
