"""Joins, unions and merges as the thesis prints them (Li 2008), and those of its time that need our spelling.

Each runs inline and returns the rows of nested loops over the packets. A stray comma before WHERE and `Union` are as
printed.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import in_ns
from tests.references import small_captures

NS = 10**9
MINUTE = 60 * NS
SYN, SYN_ACK, ACK = 2, 18, 16
LINKS = ("Main1", "Main2", "S0", "S1", "M1", "M2", "A", "B", "C", "D", "Main", "syn", "tap")

Answer = Counter[tuple]


@dataclass(frozen=True)
class Packet:
    """One TCP packet of the captures."""

    ts: int
    src: str
    dst: str
    sport: int
    dport: int
    flags: int
    ip_id: int

    def answers(self, other: Packet) -> bool:
        """Whether it is of the same flow in the opposite direction."""
        return (self.src, self.dst, self.sport, self.dport) == (other.dst, other.src, other.dport, other.sport)

    @property
    def frame(self) -> bytes:
        segment = struct.pack(">HHIIBBHHH", self.sport, self.dport, 1, 2, 5 << 4, self.flags, 100, 0, 0)
        whole = bytearray(small_captures.ip(self.src, self.dst, 6, segment, 40))
        whole[4:6] = struct.pack(">H", self.ip_id)
        return bytes(whole)


def packets(*names: str) -> list[Packet]:
    """The packets of some links: three minutes of few hosts, disordered, with ties and times on the second."""
    found = []
    for name in names:
        chosen = random.Random(f"packets of {name}")
        times = sorted(chosen.choice([chosen.randrange(180_000), 1000 * chosen.randrange(180)]) for _ in range(90))
        for at in times:
            late = max(0, at - chosen.choice([0, 0, 0, 1500]))
            pair = chosen.sample(range(3), 2)
            found.append(
                Packet(
                    late * 10**6,
                    *(f"10.0.0.{host}" for host in pair),
                    *(chosen.randrange(2) + 1 for _ in range(2)),
                    chosen.choice([SYN, SYN_ACK, ACK, SYN | 0xC0]),
                    chosen.randrange(2),
                )
            )
    return found


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("links")
    return {
        name: small_captures.write(folder / f"{name}.pcap", [(row.ts / NS, row.frame) for row in packets(name)])
        for name in LINKS
    }


def pairs(
    left: Iterable[Packet], right: Iterable[Packet], meets: Callable[[Packet, Packet], bool]
) -> list[tuple[Packet, Packet]]:
    rights = list(right)
    return [(one, other) for one in left for other in rights if meets(one, other)]


def banded(left_range: int, right_range: int) -> Callable[[Packet, Packet], bool]:
    return lambda one, other: -right_range <= other.ts - one.ts <= left_range


def tumbling(length: int) -> Callable[[Packet, Packet], bool]:
    return lambda one, other: one.ts // length == other.ts // length


def answering(left: str, right: Iterable[Packet], within: Callable[[Packet, Packet], bool]) -> list:
    return pairs(packets(left), right, lambda one, other: one.answers(other) and within(one, other))


def from_to(left: str, right: str, within: Callable[[Packet, Packet], bool]) -> list[tuple[Packet, Packet]]:
    """Pairs of which the source of the one is the destination of the other."""
    return pairs(packets(left), packets(right), lambda one, other: one.src == other.dst and within(one, other))


def addresses(found: Iterable[tuple[Packet, Packet]]) -> Answer:
    return Counter((one.src, one.dst, other.src, other.dst, other.ts) for one, other in found)


def handshake(one: Packet, other: Packet) -> bool:
    first, second = (flags & 63 for flags in (one.flags, other.flags))
    return (one.ts < other.ts and (first, second) == (SYN, SYN_ACK)) or (
        one.ts > other.ts and (first, second) == (SYN_ACK, SYN)
    )


def sliding(rows: Iterable[int], length: int, slide: int) -> Answer:
    """Counts of times in windows."""
    found = Counter(wid for ts in rows for wid in range(ts // slide, (ts + length) // slide))
    return Counter(((wid + 1) * slide - length, (wid + 1) * slide, count) for wid, count in found.items())


def of_minutes(rows: list[Packet]) -> Answer:
    found = Counter((row.ts // MINUTE, row.src, row.dst) for row in rows)
    return Counter((wid * MINUTE, (wid + 1) * MINUTE, *key, count) for (wid, *key), count in found.items())


QUERIES: dict[str, tuple[str, Callable[[], Answer]]] = {
    "Q5-7": (
        """SELECT Main1.srcIP, Main1.destIP, Main2.srcIP, Main2.destIP, Main2.ts
           FROM Main1, Main2
               [RANGE TUMBLING 5 minutes, WA ts],
           WHERE Main1.srcIP = Main2.destIP""",
        lambda: addresses(from_to("Main1", "Main2", tumbling(5 * MINUTE))),
    ),
    "Q5-8": (
        """SELECT Main1.srcIP, Main1.destIP, Main2.srcIP, Main2.destIP, Main2.ts
           FROM Main1 [RANGE 3 minutes, WA ts],
               Main2 [RANGE 2 minutes, WA ts]
           WHERE Main1.srcIP = Main2.destIP""",
        lambda: addresses(from_to("Main1", "Main2", banded(3 * MINUTE, 2 * MINUTE))),
    ),
    "Q7-1": (
        """SELECT S0.ts, S1.ts, count(*)
           FROM   S0 [WA ts, RANGE 2 min],
                  S1 [WA ts, RANGE 2 min]
           WHERE  S0.srcIP = S1.destIP and S0.destIP = S1.srcIP and
                  S0.srcPort = S1.destPort and S0.destPort = S1.srcPort and
                  ((S0.ts < S1.ts and S0.flag = SYN and S1.flag = SYN_ACK) or
                   (S0.ts > S1.ts and S0.flag = SYN_ACK and S1.flag = SYN))
           GROUP BY S0.ts, S1.ts;""",
        lambda: Counter(
            (*times, count)
            for times, count in Counter(
                (one.ts, other.ts)
                for one, other in answering("S0", packets("S1"), banded(2 * MINUTE, 2 * MINUTE))
                if handshake(one, other)
            ).items()
        ),
    ),
    "Q7-2": (
        """SELECT count(*) [RANGE 1 minute, SLIDE 1 minute, WA M1.ts]
           FROM M1 [RANGE 9 seconds, WA ts],
                 M2 [RANGE 9 seconds, WA ts]
           WHERE M1.srcIP = M2.destIP and M1.destIP = M2.srcIP and
                 M1.srcPort = M2.destPort and M1.destPort = M2.srcPort""",
        lambda: sliding((one.ts for one, _ in answering("M1", packets("M2"), banded(9 * NS, 9 * NS))), MINUTE, MINUTE),
    ),
    "Q8-1": (
        """SELECT      srcIP, destIP, count(*)
                      [RANGE 1 minute, SLIDE 1 minute, WA ts]
           FROM        Main
           GROUP BY   srcIP,
                      destIP""",
        lambda: of_minutes(packets("Main")),
    ),
    "Q8-2": (
        """SELECT    srcIP, destIP, count(*)
                     [RANGE 1 minute, SLIDE 1 minute, WA ts]
           FROM      M1 UNION M2
           GROUP BY  srcIP, destIP""",
        lambda: of_minutes(packets("M1", "M2")),
    ),
    "Q8-3": (
        """SELECT    M1.srcIP, M1.destIP, M1.ts
           FROM      A UNION B as M1, C UNION D as M2
           [RANGE TUMBLING 10 seconds, WA ts],
           WHERE    M1.srcIP = M2.destIP and M1.destIP = M2.srcIP and
           M1.srcPort = M2.destPort and M1.destPort = M2.srcPort""",
        lambda: Counter(
            (one.src, one.dst, one.ts)
            for name in ("A", "B")
            for one, _ in answering(name, packets("C", "D"), tumbling(10 * NS))
        ),
    ),
    "Q8-4": (
        """SELECT    M1.srcIP, M1.destIP, M1.ts
           FROM      M1, M2 Union C as M3
                     [RANGE TUMBLING 1 minute, WA ts]
           WHERE     M1.srcIP = M3.destIP and M1.destIP = M3.srcIP and
                     M1.srcPort = M3.destPort and M1.destPort = M3.srcPort""",
        lambda: Counter((one.src, one.dst, one.ts) for one, _ in answering("M1", packets("M2", "C"), tumbling(MINUTE))),
    ),
    "Q8-5": (
        """SELECT    count(*)
                     [RANGE 5 minutes, SLIDE 1 minute, WA ts]
           FROM      M1 UNION M2 UNION C""",
        lambda: sliding((row.ts for row in packets("M1", "M2", "C")), 5 * MINUTE, MINUTE),
    ),
    # Gigascope's, of a network monitor
    "three links, merged by time": (
        """SELECT tb, count(*)
           FROM (MERGE m1.time : m2.time : ctl.time FROM Main1 m1, Main2 m2, C ctl)
           GROUP BY time/60 AS tb""",
        lambda: Counter(
            (start, end, start // MINUTE, count)
            for start, end, count in sliding((row.ts for row in packets("Main1", "Main2", "C")), MINUTE, MINUTE)
        ),
    ),
    "handshake time": (
        """SELECT S.time, A.time, count(*), avg((A.ts - S.ts) / 1000)
           FROM syn S [RANGE 3 s, WA time], tap A [RANGE 0 s, WA time]
           WHERE S.srcIP = A.destIP AND S.destIP = A.srcIP AND S.srcPort = A.destPort AND S.destPort = A.srcPort
           GROUP BY S.time, A.time""",
        lambda: Counter(
            (*times, len(found), sum(found) / len(found))
            for times, found in grouped(
                ((one.ts // NS, other.ts // NS), (other.ts - one.ts) // 1000)
                for one, other in answering("syn", packets("tap"), banded(3 * NS, 0))
            ).items()
        ),
    ),
    "unanswered SYN": (
        """SELECT S.destIP, S.time
           FROM syn S [RANGE 3 s, WA ts] LEFT_OUTER_JOIN tap A [RANGE 0 s, WA ts]
           WHERE S.srcIP = A.destIP AND S.destIP = A.srcIP AND S.srcPort = A.destPort AND S.destPort = A.srcPort
             AND A.srcIP IS NULL""",
        lambda: Counter((one.dst, one.ts // NS) for one in packets("syn") if not answered(one, banded(3 * NS, 0))),
    ),
    "unanswered SYN, in words of SQL": (
        """SELECT destIP, time
           FROM syn S [RANGE 3 s, WA ts] ANTI JOIN tap A [RANGE 0 s, WA ts]
           ON S.srcIP = A.destIP AND S.destIP = A.srcIP AND S.srcPort = A.destPort AND S.destPort = A.srcPort""",
        lambda: Counter((one.dst, one.ts // NS) for one in packets("syn") if not answered(one, banded(3 * NS, 0))),
    ),
    "both directions in a minute": (
        """SELECT M1.srcIP, M1.destIP, M1.time
           FROM Main1 M1, (MERGE Main2.time : tap.time) M3 [RANGE TUMBLING 60 s, WA time]
           WHERE M1.srcIP = M3.destIP AND M1.destIP = M3.srcIP
             AND M1.srcPort = M3.destPort AND M1.destPort = M3.srcPort""",
        lambda: Counter(
            (one.src, one.dst, one.ts // NS) for one, _ in answering("Main1", packets("Main2", "tap"), tumbling(MINUTE))
        ),
    ),
    "duplicates of two taps": (
        "SELECT DISTINCT time, srcIP, destIP, ip_id FROM (MERGE syn.time : tap.time)",
        lambda: Counter({(row.ts // NS, row.src, row.dst, row.ip_id) for row in packets("syn", "tap")}),
    ),
}


def answered(one: Packet, within: Callable[[Packet, Packet], bool]) -> bool:
    return any(one.answers(other) and within(one, other) for other in packets("tap"))


def grouped(rows: Iterable[tuple[tuple[int, int], int]]) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_printed_query_answers_what_it_says(name: str, captures: dict[str, Path]) -> None:
    sql, wanted = QUERIES[name]
    words = sql.replace("(", " ").replace(",", " ").replace(".", " ").split()
    table = in_ns.query(sql, streams={link: [str(path)] for link, path in captures.items() if link in words})
    found = Counter(tuple(row.values()) for row in table.to_pylist())
    assert found == wanted()
    assert sum(found.values()) > 2


def test_all_columns_of_a_join_are_those_of_both_sides(captures: dict[str, Path]) -> None:
    table = in_ns.query(  # Q3-1
        """SELECT *
           FROM Main1 [WA ts, RANGE 3 min],
                 Main2 [WA ts, RANGE 2 min]
           WHERE Main1.srcIP = Main2.destIP;""",
        streams={name: [str(captures[name])] for name in ("Main1", "Main2")},
    )
    assert {name.partition(".")[0] for name in table.schema.names} == {"Main1", "Main2"}
    found = Counter(
        (row["Main1.ts"], row["Main1.srcIP"], row["Main1.ip_id"], row["Main2.ts"], row["Main2.tcp_flags"])
        for row in table.to_pylist()
    )
    assert found == Counter(
        (one.ts, one.src, one.ip_id, other.ts, other.flags)
        for one, other in from_to("Main1", "Main2", banded(3 * MINUTE, 2 * MINUTE))
    )
    assert sum(found.values()) > 100
