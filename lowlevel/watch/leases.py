"""The lease file of ISC's DHCP server, for DHCPv4 (dhcpd.leases(5)).

    lease 192.0.2.5 {
      starts 4 2024/05/02 10:00:00;
      ends 4 2024/05/02 12:00:00;
      binding state active;
      client-hostname "laptop";
      on expiry { … }
    }

A lease may also be on one line. Braces and semicolons in texts and comments have no meaning. A lease without its last
brace is an error, because the server has not yet written the whole lease.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lowlevel.watch.errors import WatchlistError

LEASE_FILE = re.compile(
    rb"^(?:lease\s|authoring-byte-order\s|server-duid\s|# The format of this file is documented in the dhcpd\.leases)",
    re.MULTILINE,
)
"""A line that occurs only in lease files, even without leases."""

LEASE_OF_DHCPV6 = re.compile(r"^ia-(?:na|ta|pd)\b", re.MULTILINE)

QUOTED = r'"(?>[^"\\]+|\\.)*+"'
PART = rf'(?>[^{{}}"#]+|{QUOTED}|#[^\n]*+)'
BLOCK = rf"\{{(?>{PART}|\{{{PART}*+\}})*+\}}"
START = re.compile(rf"#[^\n]*|{QUOTED}|(?<![^\s}}])(lease)(?=\s|\Z)")
"""Begin of a lease, or a comment or text that is skipped."""

LEASE = re.compile(rf"lease\s+([^\s{{}}]+)\s*\{{((?>{PART}|{BLOCK})*+)\}}")
"""A whole lease: its address and its statements."""

WITHOUT_MEANING = re.compile(rf"({QUOTED})|#[^\n]*|{BLOCK}")
"""Matches comments, blocks and texts of a lease. Comments and blocks are removed, texts are kept."""

STATEMENT = re.compile(rf'((?>[^;"]+|{QUOTED})+);')

STATE = re.compile(r"binding\s+state\s+([\w-]+)")

ENDED_STATES = ("free", "expired", "released", "backup")
"""States of an address that has no lease now. A lease with such a state and with `ends` is a past lease, which was true
until `ends`. Without `ends` there was no lease."""

TIME = re.compile(r"\w+\s+(?:\d\s+(\d{4})/(\d\d)/(\d\d)\s+(\d\d:\d\d:\d\d)|epoch\s+(\d{1,11})|never)")
NAME = re.compile(r'client-hostname\s+"([^"]*)"|hardware\s+\S+\s+([0-9A-Fa-f:]+)')


class Lease(NamedTuple):
    """A lease: its line, its address, the name of the host or its MAC address, and its times (s, UTC) or None."""

    line: int
    address: str
    label: str
    start: int | None
    end: int | None


def read_leases(text: str) -> list[Lease]:
    """Return the leases of a lease file.

    A record of an address without a lease has an empty lifetime, but ends the previous lease. An end before the start
    (the clock of the server was set back) is replaced by the start. Raises WatchlistError for a wrong time, and for a
    lease without its last brace.
    """
    if association := LEASE_OF_DHCPV6.search(text):
        line = text.count("\n", 0, association.start()) + 1
        raise WatchlistError(f"line {line}: got '{association.group()}' of DHCPv6, expected leases of DHCPv4")
    leases = []
    for line, address, statements in _split(text):
        names = [match for statement in statements if (match := NAME.fullmatch(statement))]
        found = [name or mac for name, mac in (match.groups() for match in names)]
        label = next((name for name in found if ":" not in name), next(iter(found), "unknown"))
        start, end = (_time_of(statements, name, line) for name in ("starts", "ends"))
        state = next((match[1] for statement in statements if (match := STATE.fullmatch(statement))), None)
        if state not in (None, "active") and (end is None or state not in ENDED_STATES):
            if start is None:
                continue
            end = start
        if start is not None and end is not None:
            end = max(start, end)
        leases.append(Lease(line, address, label, start, end))
    return leases


def _split(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the line, the address and the statements of each lease, without semicolons."""
    position, line, counted = 0, 1, 0
    while found := START.search(text, position):
        position = found.end()
        if found[1] is None:
            continue
        line, counted = line + text.count("\n", counted, found.start()), found.start()
        lease = LEASE.match(text, found.start())
        if lease is None:
            got = text[found.start() :].split("\n", 1)[0].strip()
            raise WatchlistError(f"line {line}: got '{got}' without the end of the lease, expected '}}' after it")
        position = lease.end()
        body = WITHOUT_MEANING.sub(lambda part: part[1] or ";", lease[2])
        yield line, lease[1], [statement.strip() for statement in STATEMENT.findall(body)]


def _time_of(statements: Sequence[str], name: str, line: int) -> int | None:
    """Return the time (s) of a statement such as `ends 4 2024/05/02 12:00:00`; None without one, and for never."""
    statement = next((each for each in statements if each.split(None, 1)[:1] == [name]), None)
    if statement is None:
        return None
    match = TIME.fullmatch(statement)
    try:
        if match is not None:
            year, month, day, time, epoch = match.groups()
            if epoch is not None:
                return int(epoch)
            text = None if year is None else f"{year}-{month}-{day}T{time}"
            return None if text is None else int(np.datetime64(text, "s").astype(np.int64))
    except ValueError:
        pass  # such as month 13
    expected = f"'{name} 4 2024/05/02 12:00:00;', '{name} epoch 1714651200;' or '{name} never;'"
    raise WatchlistError(f"lease in line {line}: got '{statement};', expected {expected}")
