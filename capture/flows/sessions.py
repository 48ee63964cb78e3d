"""Transport sessions: the senders of export datagrams, and their announcements.

A session is the address and UDP port of an exporter, with one observation domain and one version. A template belongs to
one transport session and observation domain (RFC 7011 §8). Two exporters with the same address (NAT) have different
ports, so their announcements are separate.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import field
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from capture.flows.kernels import sessions as session_row
from capture.flows.kernels.records import KEY_WORDS
from capture.flows.kernels.values import MISSING_TIME
from capture.flows.sampling import MAX_ALL_KEYS, Address, Sampling
from capture.flows.templates import DecoderLimits, Definition
from capture.lazy_dataclasses import dataclass

TWO_64 = 1 << 64
"""2 to the power of 64: the size of the range of an address half."""


class SessionKey(NamedTuple):
    """Identity of a session. `address` is None for files of export datagrams, which do not record senders."""

    version: int
    address: Address | None
    port: int
    domain: int

    @property
    def identity_words(self) -> tuple[int, ...]:
        """The IDENTITY_WORDS words at the beginning of the session's row."""
        address_bits = int(self.address) if self.address is not None else 0
        address_version = self.address.version if self.address is not None else 0
        return (
            self.version,
            address_version,
            _signed(address_bits // TWO_64),
            _signed(address_bits % TWO_64),
            self.port,
            self.domain,
        )


def _signed(number: int) -> int:
    return number - TWO_64 if number >= TWO_64 // 2 else number


def address_of(version: int, high: int, low: int) -> Address | None:
    """Make an address from its version, upper and lower half. Return None for version 0."""
    if version == 4:
        return IPv4Address(low)
    return IPv6Address((high % TWO_64) * TWO_64 + low % TWO_64) if version == 6 else None


@dataclass(slots=True)
class Session:
    """State of one session: its templates by ID, its sampling, and the start of its exporter (ms, or None).

    `repeated_sets`: number of records by digest, for template sets already read. Cleared when a template changes.
    """

    number: int
    key: SessionKey
    templates: dict[int, Definition] = field(default_factory=dict)
    repeated_sets: dict[bytes, int] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    exporter_start: int | None = None


class Sessions:
    """All sessions, and the tables in which kernels find them. The number of sessions is limited.

    `fixed_rates`: rates that override announced rates: one rate for all exporters, or rates by address.
    """

    def __init__(self, bounds: DecoderLimits, fixed_rates: int | Mapping[Address, int] | None = None) -> None:
        """Make tables for `bounds.sessions` sessions."""
        self.bounds = bounds
        self.fixed_rates = fixed_rates
        self.rows: npt.NDArray[np.int64] = np.zeros((bounds.sessions, session_row.SESSION_WORDS), np.int64)
        self.slots: npt.NDArray[np.int64] = np.zeros(1 << (2 * bounds.sessions - 1).bit_length(), np.int64)
        self.keys: npt.NDArray[np.int64] = np.zeros(KEY_WORDS, np.int64)
        self.by_number: dict[int, Session] = {}
        self.by_key: dict[SessionKey, Session] = {}
        self.clock = 0
        """Number of the last datagram. The word LAST_USE of a row contains such numbers."""
        self.steps = 0
        """Cost of opening, choosing and closing sessions: number of visited slots, queue entries and keys."""
        self._free: list[int] = []  # indices of closed sessions
        self._queue: list[tuple[int, int]] = []  # heap of (LAST_USE, index), one per session; may be outdated
        self._keys_used = 0  # rows of `keys` in use, with those of closed or changed sessions
        self._keys_live = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.by_number.values()))

    def __len__(self) -> int:
        return len(self.by_number)

    @property
    def is_full(self) -> bool:
        """True if a session must be closed before a new session can be opened."""
        return len(self.by_number) == self.bounds.sessions

    def complete_until(self, lost_after: int) -> int:
        """Return the time (ns, by the exporters' clocks) before which all exports of all sessions have arrived.

        Sequence numbers prove this. A session is complete until the last export before the first missing number, or
        until its last export. Numbers that are missing for more than `lost_after` ns are lost and have no effect. The
        result is 0 without a session, and if a session began less than `lost_after` ns ago: an export that is older
        than its first export may still arrive.
        """
        rows = self.rows[list(self.by_number)]
        if not len(rows):
            return 0
        gaps = rows[:, session_row.FIRST_GAP : session_row.NEWEST_EXPORT].reshape(
            len(rows), session_row.MAX_OPEN_GAPS, session_row.GAP_WORDS
        )
        exported = rows[:, session_row.NEWEST_EXPORT]
        waited_since = exported - lost_after
        is_open = (gaps[:, :, 1] > 0) & (gaps[:, :, 2] >= waited_since[:, np.newaxis])
        complete = np.where(is_open, gaps[:, :, 2], exported[:, np.newaxis]).min(axis=1)
        is_known = (rows[:, session_row.IS_EXPECTED_KNOWN] == 1) & (rows[:, session_row.COMPLETE_SINCE] < waited_since)
        return int(np.where(is_known, complete, 0).min())

    def longest_idle(self) -> Session:
        """Return the session with the oldest last datagram.

        A queue entry with an outdated LAST_USE is moved back, at most once per use of the session.
        """
        while True:
            self.steps += 1
            queued_use, number = self._queue[0]
            used = int(self.rows[number, session_row.LAST_USE])
            if used == queued_use:
                return self.by_number[number]
            heapq.heapreplace(self._queue, (used, number))

    def open(self, key: SessionKey) -> Session:
        """Return the session of a key. Open it if it is new. If `is_full`, the caller must first close a session."""
        known = self.by_key.get(key)
        if known is not None:
            return known
        number = self._free.pop() if self._free else len(self.by_number)
        session = self.by_number[number] = self.by_key[key] = Session(number, key)
        row = self.rows[number]
        row[:] = 0
        row[: session_row.IDENTITY_WORDS] = key.identity_words
        row[session_row.LAST_USE] = max(1, self.clock)
        row[session_row.INIT_TIME] = MISSING_TIME
        row[session_row.FORCED_NUM] = self.fixed_rate(key.address)
        heapq.heappush(self._queue, (int(row[session_row.LAST_USE]), number))
        self.steps += session_row.insert_session(self._flat_rows, number, self.slots, len(self.slots) - 1)
        return session

    @property
    def _flat_rows(self) -> npt.NDArray[np.int64]:
        return self.rows.reshape(-1)

    def fixed_rate(self, address: Address | None) -> int:
        """Return the fixed rate of an exporter, or 0."""
        if isinstance(self.fixed_rates, int):
            return self.fixed_rates
        return self.fixed_rates.get(address, 0) if self.fixed_rates and address is not None else 0

    @property
    def room_for_keys(self) -> int:
        """Number of sampling keys that can still be stored."""
        return MAX_ALL_KEYS - self._keys_live

    def close(self, session: Session) -> None:
        """Close a session. Its index can be used again."""
        number = session.number
        del self.by_number[number], self.by_key[session.key]
        self._remove_from_queue(number)
        self.steps += session_row.delete_session(self._flat_rows, number, self.slots, len(self.slots) - 1)
        self._keys_live -= int(self.rows[number, session_row.KEYS_END] - self.rows[number, session_row.KEYS])
        self.rows[number] = 0
        self._free.append(number)

    def _remove_from_queue(self, number: int) -> None:
        if self._queue[0][1] == number:  # usually the longest idle session is closed
            heapq.heappop(self._queue)
            return
        self.steps += len(self._queue)
        self._queue = [entry for entry in self._queue if entry[1] != number]
        heapq.heapify(self._queue)

    def set_start(self, session: Session, milliseconds: int) -> None:
        """Store the start of an IPFIX exporter, to which its uptimes refer."""
        session.exporter_start = milliseconds
        self.rows[session.number, session_row.INIT_TIME] = milliseconds

    def update_sampling(self, session: Session) -> None:
        """Copy the announced sampling rates of a session into the tables."""
        sampling = session.sampling
        row = self.rows[session.number]
        for (num, den), rate in (
            ((session_row.DEFAULT_NUM, session_row.DEFAULT_DEN), sampling.common_rate),
            ((session_row.UNKNOWN_KEY_NUM, session_row.UNKNOWN_KEY_DEN), sampling.default_rate),
        ):
            row[num], row[den] = (rate.numerator, rate.denominator) if rate else (0, 1)
        if sampling.rates_by_key:
            self._append_keys(session)

    def _append_keys(self, session: Session) -> None:
        """Append the keys of one session. A full array is rebuilt with room for twice the number of keys in use."""
        row = self.rows[session.number]
        self._keys_live += len(session.sampling.rates_by_key) - int(row[session_row.KEYS_END] - row[session_row.KEYS])
        needed_rows = self._keys_used + len(session.sampling.rates_by_key)
        if needed_rows * KEY_WORDS > len(self.keys):
            sessions = [keyed_session for keyed_session in self if keyed_session.sampling.rates_by_key]
            capacity = 2 * self._keys_live + len(sessions)
            self.keys = np.zeros(max(1, capacity) * KEY_WORDS, np.int64)
            self._keys_used = 0
        else:
            sessions = [session]
        for keyed_session in sessions:
            self._write_keys(keyed_session)

    def _write_keys(self, session: Session) -> None:
        keys = [
            (kind, _signed(number), rate.numerator, rate.denominator)
            for (kind, number), rate in session.sampling.rates_by_key.items()
        ]
        row = self.rows[session.number]
        row[session_row.KEYS], self._keys_used = self._keys_used, self._keys_used + len(keys)
        row[session_row.KEYS_END] = self._keys_used
        row[session_row.KEY_KINDS] = sum({1 << kind for kind, *_ in keys})
        first_word = int(row[session_row.KEYS]) * KEY_WORDS
        self.keys[first_word : self._keys_used * KEY_WORDS] = np.array(keys, np.int64).reshape(-1)
        self.steps += len(keys)
