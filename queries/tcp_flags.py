"""What papers call a TCP segment by: `flag = SYN` for the flags of a first segment, `flag = SYN_ACK` for its answer.

`flag` are the six flags of RFC 9293 §3.1 that say what a segment is for, the lowest bits of `tcp_flags`. Those of
congestion control (ECE and CWR, RFC 3168) are left out: a SYN that offers ECN is a SYN.
"""

from __future__ import annotations

from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
SIX = 63

FLAG_SETS: dict[str, int] = {
    "FIN": FIN,
    "SYN": SYN,
    "RST": RST,
    "PSH": PSH,
    "ACK": ACK,
    "URG": URG,
    "SYN_ACK": SYN | ACK,
    "FIN_ACK": FIN | ACK,
    "RST_ACK": RST | ACK,
    "PSH_ACK": PSH | ACK,
    "FIN_PSH_ACK": FIN | PSH | ACK,
}
"""Names of sets of flags, constants of queries where no column is called that."""

FLAG = "flag"


def flag_set(name: str) -> Literal | None:
    """Return the constant that a name means, without regard to case; None for another name.

    >>> flag_set("syn_ack").value
    18
    """
    value = FLAG_SETS.get(name.upper())
    return None if value is None else Literal(value, Type.INT)


def six_flags(tcp_flags: Column) -> Expression:
    """Return what `flag` means."""
    return Binary(Op.BIT_AND, tcp_flags, Literal(SIX, Type.INT))
