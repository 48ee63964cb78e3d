"""Streams of export datagrams of random structure, in which templates come late, change and end, and harm to them."""

from __future__ import annotations

from random import Random

from capture.flows.elements import registered_elements
from tests.references.flow_rows import Sent
from tests.references.netflow_bytes import (
    VARIABLE,
    Spec,
    a_set,
    ipfix,
    ipfix_options,
    template,
    v5,
    v7,
    v9,
    v9_options,
    variable,
)

COMMON = (
    1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16, 17, 21, 22, 23, 24, 27, 28, 32, 34, 48, 50, 56, 58, 60, 61, 62, 80, 85,
    86, 95, 96, 139, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 176, 177, 210, 291, 302, 305,
    306, 309, 310, 323, 371,
)  # fmt: skip
"""Elements that mean something to a core column, and some that do not."""

NATURAL = {
    "unsigned8": 1, "unsigned16": 2, "unsigned32": 4, "unsigned64": 8, "signed8": 1, "signed16": 2, "signed32": 4,
    "signed64": 8, "float32": 4, "float64": 8, "boolean": 1, "macAddress": 6, "dateTimeSeconds": 4,
    "dateTimeMilliseconds": 8, "dateTimeMicroseconds": 8, "dateTimeNanoseconds": 8, "ipv4Address": 4,
    "ipv6Address": 16,
}  # fmt: skip

SENDERS = [("192.0.2.1", 2055), ("192.0.2.1", 2056), ("2001:db8::1", 2055), (None, 0)]


def random_spec(random: Random, version: int) -> Spec:
    """A field of any element, mostly of its natural length, sometimes reduced, longer, empty or of variable length."""
    if random.random() < 0.75:
        element = random.choice(COMMON)
    else:
        element = random.choice([*registered_elements(), 40001, 40005, 33002, 9999])
    known = registered_elements().get(element)
    natural = NATURAL.get(known.type if known else "", random.choice([3, 4, 8, 20]))
    length = random.choice([natural] * 12 + [max(1, natural // 2), natural + random.randrange(1, 9), 0, VARIABLE])
    if version == 10 and random.random() < 0.15:
        return element & 0x7FFF, length, random.choice([29305, 5951, 2**32 - 1])
    return element, length


def random_value(random: Random, spec: Spec) -> bytes:
    """The bytes of one field, as they stand in a record."""
    if spec[1] == VARIABLE:
        length = random.choice([0, 1, 4, 8, 16, random.randrange(40), 254, 255, 300])
        return variable(random_bytes(random, length, spec[0]), random.random() < 0.2)
    return random_bytes(random, spec[1], spec[0])


def random_bytes(random: Random, length: int, element: int) -> bytes:
    if element in (34, 50, 305, 306, 309, 310, 48, 302, 10) and length:
        return random.choice([0, 1, 2, 3, 100]).to_bytes(length, "big") if length > 1 else b"\x02"
    kind = random.random()
    if kind < 0.15:
        return bytes(length)
    if kind < 0.3:
        return (random.randrange(200) % 256).to_bytes(length, "big") if length else b""
    if kind < 0.4:
        return b"text"[:length].ljust(length, b"\0")
    return random.randbytes(length)


class Exporter:
    """One session of a sender: numbers datagrams by its version's rule, and knows what its templates are now."""

    def __init__(self, random: Random, version: int, sender: tuple[str | None, int], domain: int) -> None:
        self.random, self.version, self.sender, self.domain = random, version, sender, domain
        self.templates: dict[int, tuple[bool, list[Spec]]] = {}
        self.sequence = random.choice([0, 2**32 - 3])
        self.clock = 1_700_000_000 + random.randrange(1000)

    def announce(self, number: int) -> bytes:
        """A set with a new template of a number, of flows or of options."""
        random = self.random
        options = random.random() < 0.3
        fields = [random_spec(random, self.version) for _ in range(random.randrange(1, 9))]
        if options and random.random() < 0.6:
            fields += random.choice([[(34, 4)], [(48, 2), (50, 4)], [(305, 4), (306, 4)], [(160, 8)], [(311, 8)]])
        if all(spec[1] == 0 for spec in fields):
            fields.append((4, 1))
        scope: list[Spec] = []
        if options:
            scope = [random.choice([(1, 4), (2, 4), (10, 4)] if self.version == 9 else [(149, 4), (10, 4), (143, 4)])]
        self.templates[number] = (options, [*scope, *fields])
        late = self.version == 10
        if not options:
            return a_set(2 if late else 0, template(number, fields), random.choice([0, 0, 2]))
        make = ipfix_options if late else v9_options
        return a_set(3 if late else 1, make(number, scope, fields), random.choice([0, 0, 2]))

    def data(self, number: int) -> bytes:
        """A set of records of a template."""
        _, specs = self.templates[number]
        shortest = sum(1 if spec[1] == VARIABLE else spec[1] for spec in specs)
        records = [
            b"".join(random_value(self.random, spec) for spec in specs)
            for _ in range(self.random.choice([0, 1, 2, 5, 12]))
        ]
        return a_set(number, b"".join(records)[:60_000], self.random.randrange(min(4, shortest)))

    def datagram(self) -> bytes:
        """The next datagram: anything this version's exporters send."""
        random = self.random
        self.clock += random.randrange(3)
        self.sequence = (self.sequence + random.choice([0, 1, 1, 1, 5])) % 2**32
        if self.version in (5, 7):
            size = 48 if self.version == 5 else 52
            records = [random.randbytes(size) for _ in range(random.randrange(5))]
            head = {"uptime": random.randrange(2**32), "seconds": self.clock, "sequence": self.sequence}
            if self.version == 7:
                return v7(records, **head)
            return v5(records, **head, engine=self.domain, sampling=random.choice([0, 0x4064, 3]))
        sets = []
        for _ in range(random.randrange(1, 4)):
            number = random.choice([256, 257, 258, 65535])
            kind = random.random()
            if number not in self.templates or kind < 0.15:
                sets.append(self.announce(number))
            elif kind < 0.2 and self.version == 10:
                self.templates.pop(number)
                sets.append(a_set(2, number.to_bytes(2, "big") + bytes(2)))
            else:
                sets.append(self.data(number))
        if self.version == 9:
            return v9(
                sets, uptime=random.randrange(2**32), seconds=self.clock, sequence=self.sequence, domain=self.domain
            )
        return ipfix(sets, seconds=self.clock, sequence=self.sequence, domain=self.domain)


def random_stream(random: Random, datagrams: int, disorder: bool = False) -> list[Sent]:
    """Return datagrams of several sessions in turn.

    With `disorder` many arrive later than datagrams that were sent after them.
    """
    exporters = [
        Exporter(random, version, sender, domain)
        for sender in SENDERS
        for version, domain in ((9, 0), (9, 7), (10, 0), (10, 2**32 - 1), (5, 3), (7, 0))
    ]
    active = random.sample(exporters, 6)
    sent = []
    for arrival in range(datagrams):
        exporter = random.choice(active)
        sent.append((exporter.datagram(), exporter.sender, arrival))
    if disorder:
        sent = [each for _, each in sorted((place + random.randrange(6), each) for place, each in enumerate(sent))]
    return sent


def harmed(random: Random, payload: bytes) -> bytes:
    """A datagram with bytes changed, cut off or added."""
    data = bytearray(payload)
    for _ in range(random.choice([1, 1, 2, 8])):
        kind = random.random()
        if kind < 0.6 and data:
            data[random.randrange(len(data))] = random.choice([0, 1, 255, random.randrange(256)])
        elif kind < 0.8:
            del data[random.randrange(len(data) + 1) :]
        else:
            data += random.randbytes(random.randrange(20))
    return bytes(data)
