"""Transport sessions: whom datagrams come from, and what each has announced.

A session is an exporter's address and UDP port, with one observation domain in it, in one version (RFC 7011 §8: a
template belongs to a transport session and an observation domain). Two exporters behind one address have ports of
their own; what one announces is nothing to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from capture.flows.bounds import Bounds
from capture.flows.kernels import sessions as words
from capture.flows.kernels.records import KEY
from capture.flows.kernels.values import MISSING
from capture.flows.sampling import ALL_KEYS, Address, Sampling
from capture.flows.templates import Definition

HALF = 1 << 64


class SessionKey(NamedTuple):
    """Whose session it is; `address` is None for files of bare datagrams, which do not say who sent them."""

    version: int
    address: Address | None
    port: int
    domain: int

    @property
    def words(self) -> tuple[int, ...]:
        """The first words of the session's row."""
        number = int(self.address) if self.address is not None else 0
        version = self.address.version if self.address is not None else 0
        return self.version, version, _signed(number // HALF), _signed(number % HALF), self.port, self.domain


def _signed(number: int) -> int:
    return number - HALF if number >= HALF // 2 else number


def address_of(version: int, high: int, low: int) -> Address | None:
    """Make an address of its three words; None for version 0."""
    if version == 4:
        return IPv4Address(low)
    return IPv6Address((high % HALF) * HALF + low % HALF) if version == 6 else None


@dataclass(slots=True)
class Session:
    """What one session announced: its templates by number, how it samples, and when it was started (ms, or None).

    `heard` are digests of sets that say nothing new, as long as no template changes, and how many records each has.
    """

    number: int
    key: SessionKey
    templates: dict[int, Definition] = field(default_factory=dict)
    heard: dict[bytes, int] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    started: int | None = None


class Sessions:
    """All sessions, and the tables in which kernels find them. The one that was silent longest makes room.

    `forced` are rates that stand whatever is announced: one for all, or by exporter's address.
    """

    def __init__(self, bounds: Bounds, forced: int | Mapping[Address, int] | None = None) -> None:
        """Make tables for as many sessions as `bounds` allows."""
        self.bounds = bounds
        self.forced = forced
        self.rows: npt.NDArray[np.int64] = np.zeros((bounds.sessions, words.WIDTH), np.int64)
        self.slots: npt.NDArray[np.int64] = np.zeros(1 << (2 * bounds.sessions - 1).bit_length(), np.int64)
        self.keys: npt.NDArray[np.int64] = np.zeros(KEY, np.int64)
        self.by_number: dict[int, Session] = {}
        self.by_key: dict[SessionKey, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.by_number.values()))

    def __len__(self) -> int:
        return len(self.by_number)

    @property
    def full(self) -> bool:
        """Whether a new session takes the place of another."""
        return len(self.by_number) == self.bounds.sessions

    def silent_longest(self) -> Session:
        """Return the session that was used least lately."""
        return self.by_number[int(np.argmin(self.rows[:, words.USED]))]

    def open(self, key: SessionKey) -> Session:
        """Return the session of a key, a new one where it has none; there must be room."""
        known = self.by_key.get(key)
        if known is not None:
            return known
        number = len(self.by_number) if not self.full and len(self.by_number) not in self.by_number else self._free()
        session = self.by_number[number] = self.by_key[key] = Session(number, key)
        row = self.rows[number]
        row[:] = 0
        row[: words.KEY_WIDTH] = key.words
        row[words.USED] = max(1, int(self.rows[:, words.USED].max()))
        row[words.INIT] = MISSING
        row[words.FORCED_NUM] = self.forced_rate(key.address)
        self._place()
        return session

    def _free(self) -> int:
        return next(number for number in range(self.bounds.sessions) if number not in self.by_number)

    def forced_rate(self, address: Address | None) -> int:
        """Return the rate that was set by hand for an exporter, or 0."""
        if isinstance(self.forced, int):
            return self.forced
        return self.forced.get(address, 0) if self.forced and address is not None else 0

    @property
    def room_for_keys(self) -> int:
        """How many samplers, selectors and interfaces can still be remembered."""
        return ALL_KEYS - len(self.keys) // KEY

    def close(self, session: Session) -> None:
        """Forget a session; its number is free."""
        del self.by_number[session.number], self.by_key[session.key]
        self.rows[session.number] = 0
        self._place()
        if session.sampling.keyed:
            self._place_keys()

    def _place(self) -> None:
        self.slots[:] = 0
        words.place_sessions(self.rows.reshape(-1), len(self.rows), self.slots, len(self.slots) - 1)

    def started(self, session: Session, milliseconds: int) -> None:
        """Note when an exporter of IPFIX was started, for times that count from there."""
        session.started = milliseconds
        self.rows[session.number, words.INIT] = milliseconds

    def sampled(self, session: Session) -> None:
        """Bring what a session announced about sampling into the tables."""
        sampling = session.sampling
        row = self.rows[session.number]
        for (num, den), rate in (
            ((words.DEFAULT_NUM, words.DEFAULT_DEN), sampling.usual),
            ((words.ELSE_NUM, words.ELSE_DEN), sampling.default),
        ):
            row[num], row[den] = (rate.numerator, rate.denominator) if rate else (0, 1)
        if sampling.keyed:
            self._place_keys()

    def _place_keys(self) -> None:
        found: list[tuple[int, int, int, int]] = []
        for session in self:
            row = self.rows[session.number]
            row[words.KEYS] = len(found)
            kinds = 0
            for (kind, number), rate in session.sampling.keyed.items():
                kinds |= 1 << kind
                found.append((kind, _signed(number), rate.numerator, rate.denominator))
            row[words.KEYS_END] = len(found)
            row[words.KEY_KINDS] = kinds
        self.keys = np.array(found or [(0, 0, 0, 0)], np.int64).reshape(-1)
