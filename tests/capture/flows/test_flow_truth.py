"""Real datagrams of 92 exporters against three other decoders.

The datagrams are part of the captures, not of this repository.

* Every field of every record as raw bytes, converted by the reference. This detects a field with a wrong offset or
  type, in any vendor's template.
* The values that the test suite of a codec of another project expects: catches a wrong idea of what an element is.
* The list of nfdump for the same datagrams detects wrong times, directions and sampling.
* The same datagrams in reverse order detect data that is lost or doubled if its template arrives later.
"""

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from capture.flows.columns import FLOW_COLUMNS
from capture.flows.decoder import FlowDecoder
from capture.flows.elements import DataType, elements_by_name
from capture.flows.kernels import sessions as session_row
from tests.references.flow_rows import decode, decoded
from tests.references.flow_values import typed
from tests.references.netflow_captures import NetflowTruth

CORE = [name for name in FLOW_COLUMNS if name != "link"]

CODEC_NAMES = {
    "in_bytes": "octetDeltaCount", "in_pkts": "packetDeltaCount", "flows": "deltaFlowCount", "src_tos": "tos",
    "l4_src_port": "srcPort", "ipv4_src_addr": "srcIP", "src_mask": "srcMask", "input_snmp": "input",
    "l4_dst_port": "destPort", "ipv4_dst_addr": "destIP", "dst_mask": "destMask", "output_snmp": "output",
    "ipv4_next_hop": "nextHop", "src_as": "srcAS", "dst_as": "destAS", "bgp_ipv4_next_hop": "bgpNextHopIPv4Address",
    "last_switched": "end_ts", "first_switched": "start_ts", "out_bytes": "postOctetDeltaCount",
    "out_pkts": "postPacketDeltaCount", "ip_protocol_version": "ipVersion", "sampling_interval": "samplingInterval",
    "sampling_algorithm": "samplingAlgorithm", "flow_sampler_id": "samplerId", "ipv4_ident": "fragmentIdentification",
    "in_src_mac": "sourceMacAddress", "out_dst_mac": "postDestinationMacAddress", "src_vlan": "vlanId",
    "dst_vlan": "postVlanId", "in_dst_mac": "destinationMacAddress", "out_src_mac": "postSourceMacAddress",
    "in_permanent_bytes": "octetTotalCount", "dst_traffic_index": "dstTrafficIndex",
    "src_traffic_index": "srcTrafficIndex", "flow_end_reason": "flowEndReason", "conn_id": "flowId",
    "xlate_src_addr_ipv4": "postNATSourceIPv4Address", "xlate_dst_addr_ipv4": "postNATDestinationIPv4Address",
    "xlate_src_port": "postNAPTSourceTransportPort", "xlate_dst_port": "postNAPTDestinationTransportPort",
    "fw_event": "firewallEvent", "fw_ext_event": "ie_33002", "fwd_flow_delta_bytes": "initiatorOctets",
    "rev_flow_delta_bytes": "responderOctets", "event_time_msec": "observationTimeMilliseconds",
    "flow_start_msec": "flowStartMilliseconds", "username": "userName", "tcp_src_port": "tcpSourcePort",
    "udp_dst_port": "udpDestinationPort", "ip_dscp": "ipDiffServCodePoint", "ipv4_src_prefix": "sourceIPv4Prefix",
    "app_id": "ie_56701_text", "user_id": "ie_56702_text", "nprobe_proto": "ie_57590", "direction": "direction",
    "protocol": "protocol", "tcp_flags": "tcp_flags", "version": "version", "icmp_type": "icmp_type",
    "icmp_code": "icmp_code",
}  # fmt: skip
"""Names of our columns in the codec. For IPFIX it uses IANA's names."""

OURS = {
    "netflow-5-valid-01": {"first_switched"},  # 0xffffffff: the codec has it 49 days after the export, we just before
    "ipfix-netscaler-with-variable-length-fields": {"flowEndMicroseconds"},  # the codec drops the fraction
}
"""Fields of a case in which we differ, and why."""


@pytest.fixture(scope="module")
def truth(captures: Path) -> NetflowTruth:
    return NetflowTruth(captures / "netflow")


def rows_of_case(truth: NetflowTruth, case: str, columns: list[str]) -> list[dict[str, Any]]:
    return decode(truth.messages(case), columns)


def test_every_field_of_every_record_is_what_its_bytes_say(truth: NetflowTruth) -> None:
    compared = 0
    for case, records in truth.records.items():
        kinds = {field.element for fields in records for field in fields}
        forms: dict[str, str] = {}
        for each in kinds:
            forms[each.name] = each.type
            if each.type is DataType.UNKNOWN:
                forms |= {f"{each.name}_text": DataType.STRING, f"{each.name}_hex": DataType.OCTET_ARRAY}
        rows = rows_of_case(truth, case, list(forms))
        assert len(rows) == len(records), case
        for number, (row, fields) in enumerate(zip(rows, records, strict=True)):
            expected: dict[str, Any] = dict.fromkeys(forms)
            for field in reversed(fields):  # of an element that is there twice the first counts
                for name, kind in forms.items():
                    if name in (field.element.name, f"{field.element.name}_text", f"{field.element.name}_hex"):
                        expected[name] = typed(kind, field.data)
            assert row == expected, (case, number)
            compared += len(fields)
    assert compared == 9686


def test_the_number_of_records_is_that_of_every_case(truth: NetflowTruth) -> None:
    for case, structure in truth.structure.items():
        decoder = FlowDecoder(["ts"])
        rows = decoded(decoder, truth.messages(case), ["ts"])
        options = int(decoder.sessions.rows[:, session_row.OPTION_RECORDS].sum())
        assert (len(rows) + options, options) == (structure["records"], structure["option_records"]), case
        asserted = truth.cases[case]["records"]
        several = any(len(truth.messages_of(name)) > 1 for name in truth.cases[case]["files"])
        assert asserted in (None, len(rows) + options) or several, case  # the codec reads one message of a file


def test_malformed_datagrams_do_not_fail(truth: NetflowTruth) -> None:
    harmless = [case for case, each in truth.cases.items() if each["must_not_fail"]]
    assert harmless
    for case in harmless:
        decode(truth.messages(case), CORE)


def test_the_values_that_the_codec_expects(truth: NetflowTruth) -> None:
    compared = 0
    for case, each in truth.cases.items():
        expected = [(one["record"], one) for one in each["expected"]]
        names = {name for _, one in expected for name in one["fields"]}
        columns = {name: column for name in names if (column := known_column(name)) is not None}
        rows = rows_of_case(truth, case, sorted(set(columns.values())))
        for record, one in expected:
            place = truth.row_of(case, record)
            if place is None:
                continue  # of options, which are no rows
            for name, value in one["fields"].items():
                of_the_header = one["fields"].get("version") == 5 and name.startswith("sampling_")
                if name in columns and name not in OURS.get(case, ()) and not of_the_header:
                    found = rows[place][columns[name]]
                    late = name.endswith("_switched") and agrees(found + 10**9, value)  # the codec forgets to borrow
                    assert agrees(found, value) or late, (case, record, name, value, found)
                    compared += 1
    assert compared > 700


def known_column(name: str) -> str | None:
    return CODEC_NAMES.get(name) or (name if name.lower() in elements_by_name() else None)


def agrees(found: Any, value: Any) -> bool:
    """Whether a column has the codec's value, which knows addresses and times as text."""
    if isinstance(value, str) and isinstance(found, int):
        if ":" in value and "T" not in value:
            return found == int(value.replace(":", ""), 16)
        return abs(found - nanoseconds(value)) < 500  # microseconds of NTP: bits that the codec does not ignore
    if isinstance(value, str) and found is not None and not isinstance(found, str):
        return found == ip_address(value)
    if isinstance(value, int) and isinstance(found, int) and found > 2**40 > value:
        return found == value * 10**9  # seconds, which the codec leaves as they are
    if isinstance(value, int) and isinstance(found, int) and found > 2**56:
        return found in (value, value * 10**6)  # milliseconds
    return found == value


def nanoseconds(text: str) -> int:
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 10**9 + int(Fraction("0." + (fraction or "0")) * 10**9)


def test_what_nfdump_lists(truth: NetflowTruth) -> None:
    compared = 0
    for case, listed in truth.nfdump.items():
        rows = rows_of_case(truth, case, CORE)
        several = any(len(truth.messages_of(name)) > 1 for name in truth.cases[case]["files"])
        for number, flow in enumerate(listed):
            row = rows[number]
            for name, pair in differences(row, flow):
                assert (case, name) in UNLIKE_NFDUMP, (case, number, name, pair)
            compared += 1
        assert len(rows) == len(listed) or several or case.startswith("netflow-5-invalid"), case
    assert compared == 472


def differences(row: dict[str, Any], flow: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the columns in which a row differs from nfdump's list. Columns that nfdump omits are not compared."""
    for name, column in (("src", "srcIP"), ("dst", "destIP")):
        if flow[name] and row[column] != ip_address(flow[name]):
            yield column, (row[column], flow[name])
    for name, column in (("src_port", "srcPort"), ("dst_port", "destPort"), ("proto", "protocol")):
        if flow[name] and (row[column] or 0) != int(flow[name]):
            yield column, (row[column], flow[name])
    for column in ("packets", "bytes"):
        if (row[column] or 0) != int(flow[column]):
            yield column, (row[column], flow[column])
    for name, column in (("first", "start_ts"), ("last", "end_ts")):
        if not flow[name].startswith("1970") and row[column] // 10**6 != nanoseconds(flow[name]) // 10**6:
            yield column, (row[column], flow[name])


UNLIKE_NFDUMP: dict[tuple[str, str], str] = {
    ("netflow-9-invalid-01", "packets"): "1 in 100 is announced for the interface that the flows come in by",
    ("netflow-9-invalid-01", "bytes"): "the same",
    ("ipfix", "start_ts"): "nfdump exchanges start and end of IPFIX flows that count from the exporter's start",
    ("ipfix", "end_ts"): "the same",
    ("ipfix-procera", "srcIP"): "the template has addresses of both versions, one of them empty: nfdump takes that",
    ("ipfix-procera", "destIP"): "the same",
}
"""Columns of a case in which we differ from nfdump, and why."""


def test_data_that_comes_before_its_template_gives_the_same_records(truth: NetflowTruth) -> None:
    columns = [name for name in CORE if name not in ("packets", "bytes", "sampling_rate")]
    for case in truth.cases:
        messages = truth.messages(case)
        forwards = sorted(map(repr, decode(messages, columns)))
        assert sorted(map(repr, decode(messages[::-1], columns))) == forwards, case
