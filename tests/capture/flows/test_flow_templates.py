"""Templates and the data that waits for them, by hand: whose they are, how they change and end, what is bounded.

The tests detect templates with too coarse keys, and data that is decoded by a later definition. They detect data that
is lost or kept without end, and a sender that makes the tables grow.
"""

import struct
from random import Random
from typing import Any

import numpy as np
import pytest

from capture.flows.decoder import FlowDecoder
from capture.flows.kernels import sessions as session_row
from capture.flows.sessions import SessionKey, Sessions
from capture.flows.templates import DecoderLimits
from capture.flows.waiting_sets import SET_OVERHEAD
from capture.metrics import (
    FLOW_MALFORMED,
    FLOW_RECORDS,
    FLOW_SESSIONS,
    FLOW_SESSIONS_FORGOTTEN,
    FLOW_SETS_DROPPED,
    FLOW_SETS_KEPT,
    FLOW_SETS_WAITING,
    FLOW_TEMPLATES,
    FLOW_TEMPLATES_REFUSED,
)
from tests.references.flow_rows import Sent, decoded
from tests.references.netflow_bytes import (
    VARIABLE,
    Spec,
    a_set,
    ipfix,
    ipfix_options,
    template,
    v9,
    v9_options,
    variable,
)

COLUMNS = ["protocol", "raw_bytes", "arrival_ts", "exporter_port", "userName"]
SENDER = ("192.0.2.1", 2055)
BYTES: list[Spec] = [(1, 4)]
PROTOCOL: list[Spec] = [(4, 1)]


class Link:
    """A decoder, and what it makes of one datagram after the other."""

    def __init__(self, **bounds: int) -> None:
        self.decoder = FlowDecoder(COLUMNS, 16, bounds=DecoderLimits(**bounds))
        self.clock = 0

    def send(self, payload: bytes, sender: tuple[str | None, int] = SENDER) -> list[Any]:
        """Return the records of one datagram: bytes, or the protocol if there are no bytes."""
        self.clock += 1
        sent: list[Sent] = [(payload, sender, self.clock)]
        rows = decoded(self.decoder, sent, COLUMNS)
        return [row["raw_bytes"] if row["raw_bytes"] is not None else row["protocol"] for row in rows]

    def total(self, metric: Any, **labels: str) -> int:
        return int(self.decoder.samples("link").total(metric, **labels))


def says(number: int, fields: list[Spec], version: int = 9, **head: int) -> bytes:
    if version == 9:
        return v9([a_set(0, template(number, fields))], **head)
    return ipfix([a_set(2, template(number, fields))], **head)


def data(number: int, body: bytes, version: int = 9, **head: int) -> bytes:
    return v9([a_set(number, body)], **head) if version == 9 else ipfix([a_set(number, body)], **head)


@pytest.mark.parametrize("version", [9, 10])
def test_templates_belong_to_a_sender_a_port_a_domain_and_a_version(version: int) -> None:
    link = Link()
    link.send(says(256, BYTES, version))
    assert link.send(data(256, bytes([0, 0, 0, 7]), version)) == [7]
    assert link.send(data(256, bytes(4), version, domain=1)) == []
    assert link.send(data(256, bytes(4), version), (SENDER[0], 2056)) == []
    assert link.send(data(256, bytes(4), version), ("192.0.2.2", 2055)) == []
    assert link.send(data(256, bytes(4), 19 - version)) == []
    assert link.total(FLOW_SETS_WAITING) == 4
    assert link.total(FLOW_SESSIONS) == 5


def test_a_template_that_changes_counts_from_where_it_does() -> None:
    link = Link()
    both = v9([a_set(0, template(256, BYTES)), a_set(256, b"\0\0\0\x05"), a_set(0, template(256, PROTOCOL)),
               a_set(256, b"\x06\x11")])  # fmt: skip
    assert link.send(both) == [5, 6, 17]
    assert link.send(says(256, PROTOCOL)) == []
    assert [link.total(FLOW_TEMPLATES, change=change) for change in ("new", "other", "same", "withdrawn")] == [
        1,
        1,
        1,
        0,
    ]


def test_templates_said_again_and_again_count_as_the_same_until_one_changes() -> None:
    link = Link()
    both = v9([a_set(0, template(256, BYTES) + template(257, PROTOCOL)), a_set(256, b"\0\0\0\x09")])
    for _ in range(5):
        assert link.send(both) == [9]
    assert link.total(FLOW_TEMPLATES, change="same") == 8
    assert link.send(says(256, PROTOCOL)) == []
    assert link.send(v9([a_set(256, b"\x06")])) == [6]
    assert link.send(both) == [9]  # the bytes heard before mean something again
    assert [link.total(FLOW_TEMPLATES, change=change) for change in ("new", "other", "same")] == [2, 2, 9]


def test_a_template_withdrawn_and_said_again_is_there_again() -> None:
    link = Link()
    again = says(256, BYTES, 10)
    for _ in range(3):
        link.send(again)
    link.send(ipfix([a_set(2, struct.pack(">HH", 256, 0))]))
    assert link.send(data(256, b"\0\0\0\1", 10)) == []
    assert link.send(again) == [1]


def test_a_template_withdrawn_is_no_more() -> None:
    link = Link()
    link.send(says(256, BYTES, 10))
    link.send(says(257, PROTOCOL, 10))
    link.send(ipfix([a_set(3, ipfix_options(258, [(149, 4)], [(41, 8)]))]))
    assert link.send(ipfix([a_set(2, struct.pack(">HH", 256, 0)), a_set(256, bytes(4)), a_set(257, b"\x06")])) == [6]
    assert link.send(ipfix([a_set(2, struct.pack(">HH", 2, 0)), a_set(257, b"\x06")])) == []  # all of flows
    assert link.total(FLOW_TEMPLATES, change="withdrawn") == 2
    assert link.send(ipfix([a_set(3, struct.pack(">HH", 3, 0))])) == []  # all of options
    assert link.total(FLOW_TEMPLATES, change="withdrawn") == 3
    assert link.send(says(256, PROTOCOL, 10)) == [0, 0, 0, 0]  # waiting data is decoded by the new template


def test_data_waits_for_its_template_in_the_order_in_which_it_came() -> None:
    link = Link()
    for number in (1, 2, 3):
        link.send(data(256, struct.pack(">II", number, 10 * number)))
    assert link.send(says(256, BYTES)) == [1, 10, 2, 20, 3, 30]
    assert [link.total(metric) for metric in (FLOW_SETS_KEPT, FLOW_SETS_WAITING, FLOW_SETS_DROPPED)] == [3, 0, 0]
    assert link.total(FLOW_RECORDS) == 6


def test_records_that_waited_keep_the_header_and_the_arrival_they_came_with() -> None:
    decoder = FlowDecoder(["export_ts", "arrival_ts"], 16)
    early = data(256, bytes(4), 10, seconds=100)
    (row,) = decoded(
        decoder, [(early, SENDER, 7), (says(256, BYTES, 10, seconds=200), SENDER, 8)], ["export_ts", "arrival_ts"]
    )
    assert row == {"export_ts": 100 * 10**9, "arrival_ts": 7}


def test_options_that_come_with_the_template_are_known_when_what_waited_is_read() -> None:
    decoder = FlowDecoder(["packets"], 16)
    options = a_set(1, v9_options(300, [(1, 4)], [(34, 4)])) + a_set(300, struct.pack(">II", 0, 10))
    datagrams = [v9([a_set(256, bytes([0, 0, 0, 3]))]), v9([a_set(0, template(256, [(2, 4)])), options])]
    assert decoded(decoder, [(each, SENDER, 0) for each in datagrams], ["packets"]) == [{"packets": 30}]


def test_options_data_waits_too() -> None:
    decoder = FlowDecoder(["packets"], 16)
    datagrams = [
        v9([a_set(300, struct.pack(">II", 0, 10))]),
        v9([a_set(1, v9_options(300, [(1, 4)], [(34, 4)]))]),
        v9([a_set(0, template(256, [(2, 4)])), a_set(256, bytes([0, 0, 0, 3]))]),
    ]
    assert decoded(decoder, [(each, SENDER, 0) for each in datagrams], ["packets"]) == [{"packets": 30}]


def test_what_waits_is_bounded_for_each_session_and_the_oldest_goes_first() -> None:
    size = 100 + 20 + SET_OVERHEAD
    link = Link(session_waiting_bytes=3 * size)
    for number in range(5):
        link.send(data(256, struct.pack(">I", number) * 25))
    link.send(data(256, bytes(100)), ("192.0.2.9", 1))
    assert link.total(FLOW_SETS_DROPPED, cause="session_full") == 2
    assert link.total(FLOW_SETS_WAITING) == 4
    assert set(link.send(says(256, BYTES))) == {2, 3, 4}


def test_what_waits_is_bounded_for_all_sessions_together() -> None:
    link = Link(waiting_bytes=3 * (100 + 20 + SET_OVERHEAD))
    for number in range(5):
        link.send(data(256, struct.pack(">I", number) * 25), ("192.0.2.1", number))
    assert (link.total(FLOW_SETS_DROPPED, cause="all_full"), link.total(FLOW_SETS_WAITING)) == (2, 3)
    assert link.send(says(256, BYTES), ("192.0.2.1", 1)) == []
    assert set(link.send(says(256, BYTES), ("192.0.2.1", 2))) == {2}


def test_the_session_that_was_silent_longest_makes_room() -> None:
    link = Link(sessions=2)
    link.send(says(256, BYTES), ("192.0.2.1", 1))
    link.send(says(256, BYTES), ("192.0.2.1", 2))
    link.send(data(999, bytes(4)), ("192.0.2.1", 2))
    assert link.send(data(256, b"\0\0\0\1"), ("192.0.2.1", 1)) == [1]
    link.send(data(256, bytes(4)), ("192.0.2.1", 3))
    assert (link.total(FLOW_SESSIONS), link.total(FLOW_SESSIONS_FORGOTTEN)) == (2, 1)
    assert link.total(FLOW_SETS_DROPPED, cause="session_forgotten") == 1
    assert link.send(data(256, b"\0\0\0\1"), ("192.0.2.1", 1)) == [1]  # not silent
    assert link.send(data(256, b"\0\0\0\1"), ("192.0.2.1", 2)) == []  # forgotten, and its template with it
    assert link.total(FLOW_RECORDS) == 2  # counters of sessions that are gone stay


def test_a_new_template_evicts_the_one_announced_longest_ago_in_its_session_or_in_all() -> None:
    link = Link(session_templates=3, templates=4)
    for number in (300, 301, 302, 300, 303):
        link.send(says(number, BYTES))
    assert link.total(FLOW_TEMPLATES, change="evicted") == 1  # 301: 300 was announced again
    assert link.send(data(301, b"\0\0\0\1")) == []
    assert link.send(data(300, b"\0\0\0\2")) == [2]
    for number in (300, 301, 302):
        link.send(says(number, BYTES), ("192.0.2.9", 1))
    assert link.total(FLOW_TEMPLATES, change="evicted") == 3
    assert [link.send(data(number, b"\0\0\0\3")) for number in (302, 300, 303)] == [[], [], [3]]
    assert [link.send(data(number, b"\0\0\0\4"), ("192.0.2.9", 1)) for number in (300, 301, 302)] == [[4], [4], [4]]
    assert link.send(says(301, BYTES)) == [1]  # waited since its template was evicted


def test_a_flood_of_templates_leaves_bounded_tables_and_one_that_is_announced_again_stays() -> None:
    link = Link(session_templates=64, templates=128)
    for number in range(2000):
        link.send(says(300 + number % 60_000, [(1, 4), (number % 400 + 2, 2)]), domain(number % 3))
        link.send(says(256, BYTES), domain(0))
    tables = link.decoder.templates
    assert tables.count == sum(len(session.templates) for session in link.decoder.sessions) <= 128
    assert max(len(session.templates) for session in link.decoder.sessions) <= 64
    new, evicted = (link.total(FLOW_TEMPLATES, change=change) for change in ("new", "evicted"))
    assert new - evicted == tables.count
    assert link.send(data(256, b"\0\0\0\5"), domain(0)) == [5]


def domain(number: int) -> tuple[str, int]:
    return "192.0.2.1", 3000 + number


def opening_steps(sources: int) -> float:
    """Slots, queue entries and keys visited per datagram of `sources` exporters, each with a template and a rate."""
    link = Link(sessions=256)
    for number in range(sources):
        sets = [a_set(0, template(256, BYTES)), a_set(256, bytes(4)), a_set(1, v9_options(300, [(2, 4)], [(34, 4)])),
                a_set(300, struct.pack(">II", 1, 10))]  # fmt: skip
        assert link.send(v9(sets, domain=number)) == [0]
    return link.decoder.sessions.steps / sources


@pytest.mark.slow("many sources")
def test_a_session_costs_as_much_with_many_sources_as_with_few() -> None:
    few, many = opening_steps(200), opening_steps(4000)
    assert many < 4 * few + 16


def test_sessions_are_found_while_others_open_and_close_in_any_order() -> None:
    random = Random(7)
    sessions = Sessions(DecoderLimits(sessions=64))
    there: dict[SessionKey, Any] = {}
    for _ in range(3000):
        sessions.clock += 1
        if there and (len(there) == 64 or random.random() < 0.45):
            usual = random.random() < 0.5
            session = sessions.longest_idle() if usual else random.choice(list(there.values()))
            if usual:
                used = {each.number: sessions.rows[each.number, session_row.LAST_USE] for each in there.values()}
                assert used[session.number] == min(used.values())
            sessions.close(session)
            del there[session.key]
        elif there and random.random() < 0.3:
            sessions.rows[random.choice(list(there.values())).number, session_row.LAST_USE] = sessions.clock
        else:
            key = SessionKey(9, None, 0, random.randrange(1 << 32))
            there[key] = sessions.open(key)
        flat, mask = sessions.rows.reshape(-1), len(sessions.slots) - 1
        assert sorted(each - 1 for each in sessions.slots.tolist() if each) == sorted(
            each.number for each in there.values()
        )
        for key, session in random.sample(list(there.items()), min(4, len(there))):
            with np.errstate(over="ignore"):
                assert session_row.lookup_session(flat, sessions.slots, mask, *key.identity_words) == session.number


def test_inserting_and_deleting_a_session_is_the_same_in_machine_code_and_in_python() -> None:
    random = Random(3)
    rows = np.zeros((40, session_row.SESSION_WORDS), np.int64)
    rows[:, session_row.DOMAIN] = [random.randrange(1 << 32) for _ in range(40)]
    slots = [np.zeros(64, np.int64) for _ in range(2)]
    there: set[int] = set()
    for _ in range(600):
        number = random.randrange(40)
        if number in there or len(there) < 32:
            kernel = session_row.delete_session if number in there else session_row.insert_session
            there ^= {number}
        else:
            kernel = session_row.delete_session  # of one that is not there
        native = kernel(rows.reshape(-1), number, slots[0], 63)
        with np.errstate(over="ignore"):
            assert kernel.function(rows.reshape(-1), number, slots[1], 63) == native
        assert slots[0].tolist() == slots[1].tolist()
        assert sorted(each - 1 for each in slots[0].tolist() if each) == sorted(there)


def test_tables_that_fill_up_begin_anew_and_nothing_is_lost() -> None:
    link = Link(templates=2)
    for turn in range(40):
        fields = [(1, 4)] * (turn + 1)
        link.send(says(256, fields))
        assert link.send(data(256, struct.pack(">I", turn) * (turn + 1))) == [turn]
        link.send(says(257, BYTES, domain=turn))
        assert link.send(data(257, b"\0\0\0\7", domain=turn)) == [7]


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (template(256, BYTES)[:-2], "cut"),
        (template(255, BYTES), "id_below_256"),
        (template(256, [(1, 0), (2, 0)]), "no_bytes"),
        (template(256, []), "no_bytes"),
        (template(256, [(1, 1)] * 513), "too_many_fields"),
    ],
)
def test_a_template_that_cannot_be_is_refused_by_cause(body: bytes, cause: str) -> None:
    link = Link()
    assert link.send(v9([a_set(0, body), a_set(256, bytes(8))])) == []
    assert link.total(FLOW_TEMPLATES_REFUSED, cause=cause) == 1
    assert link.total(FLOW_TEMPLATES) == 0


def test_zeros_behind_the_templates_of_a_set_are_padding() -> None:
    link = Link()
    link.send(v9([a_set(0, template(256, BYTES) + template(257, PROTOCOL), padding=6)]))
    assert link.total(FLOW_TEMPLATES, change="new") == 2
    assert link.total(FLOW_TEMPLATES_REFUSED) == 0


@pytest.mark.parametrize(
    ("sets", "cause", "rows"),
    [
        (a_set(256, b"\0\0\0\1") + b"\x01\x00\x00\x02" + bytes(8), "set_malformed", [1]),
        (a_set(256, b"\0\0\0\1") + b"\x01\x00\x00\x09\x00", "set_malformed", [1]),
        (a_set(77, bytes(4)) + a_set(256, b"\0\0\0\1"), "set_reserved", [1]),
        (a_set(257, variable(b"ab") + b"\x09cut"), "record_beyond_set", [None]),
    ],
)
def test_what_contradicts_itself_is_counted_and_what_is_whole_is_read(sets: bytes, cause: str, rows: list[Any]) -> None:
    link = Link()
    link.send(v9([a_set(0, template(256, BYTES) + template(257, [(371, VARIABLE)]))]))
    assert link.send(v9([sets])) == rows
    assert link.total(FLOW_MALFORMED, cause=cause) == 1


def test_a_short_message_is_read_as_far_as_it_goes() -> None:
    link = Link()
    whole = ipfix([a_set(2, template(256, BYTES)), a_set(256, struct.pack(">II", 1, 2))])
    assert link.send(whole[:-2]) == []  # the set of data is cut
    assert link.send(whole + b"\xff" * 9) == [1, 2]  # bytes after the message are not a message
    assert link.total(FLOW_MALFORMED, cause="length_beyond_datagram") == 1


def test_lengths_below_a_header_are_no_datagrams() -> None:
    link = Link()
    for payload in (b"", b"\0", b"\0\x09", bytes([0, 9]) + bytes(17), ipfix([], length=15), bytes([0, 1]) + bytes(40)):
        assert link.send(payload) == []
    assert link.total(FLOW_SESSIONS) == 0


@pytest.mark.parametrize(("name", "value"), [("sessions", 0), ("waiting_bytes", -1)])
def test_bounds_say_what_they_expect(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value}, expected at least 1"):
        DecoderLimits(**{name: value})
