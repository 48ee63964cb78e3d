"""Names of information elements and the columns that they are: the table, and ways of naming what is not in it."""

import re

import pytest

from capture.flows.columns import CORE_COLUMNS, FLOW_COLUMNS, flow_column, flow_columns
from capture.flows.elements import DataType, element, element_named, elements_by_name, registered_elements
from capture.flows.layouts import NETFLOW_V5, NETFLOW_V7
from lowlevel.expressions.types import Type

# Names in RFC 5102, RFC 7012 and later registrations: a sample over the whole registry.
KNOWN = {
    1: ("octetDeltaCount", "unsigned64"), 6: ("tcpControlBits", "unsigned16"), 27: ("sourceIPv6Address", "ipv6Address"),
    34: ("samplingInterval", "unsigned32"), 95: ("applicationId", "octetArray"), 148: ("flowId", "unsigned64"),
    150: ("flowStartSeconds", "dateTimeSeconds"), 157: ("flowEndNanoseconds", "dateTimeNanoseconds"),
    236: ("VRFname", "string"), 276: ("dataRecordsReliability", "boolean"), 291: ("basicList", "basicList"),
    292: ("subTemplateList", "subTemplateList"), 293: ("subTemplateMultiList", "subTemplateMultiList"),
    295: ("IPSecSPI", "unsigned32"), 311: ("samplingProbability", "float64"), 351: ("layer2SegmentId", "unsigned64"),
    365: ("staMacAddress", "macAddress"), 434: ("mibObjectValueInteger", "signed32"),
    467: ("natThresholdEvent", "unsigned32"), 491: ("bgpDestinationLargeCommunityList", "basicList"),
    495: ("srhActiveSegmentIPv6", "ipv6Address"), 520: ("tcpOptionsFull", "unsigned256"),
}  # fmt: skip


def test_the_table_is_ianas() -> None:
    for number, (name, kind) in KNOWN.items():
        assert (registered_elements()[number].name, registered_elements()[number].type) == (name, kind)
    assert 490 < len(registered_elements()) < 600
    assert all(1 <= number < 2**15 for number in registered_elements())


def test_no_two_elements_have_one_name_and_none_is_called_as_a_core_column() -> None:
    assert len(elements_by_name()) == 2 * len(registered_elements())
    assert not elements_by_name().keys() & {name.lower() for name in CORE_COLUMNS}
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", each.name) for each in registered_elements().values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sourceipv4ADDRESS", (8, 0, "sourceIPv4Address", DataType.IPV4_ADDRESS)),
        ("reverseOctetDeltaCount", (1, 29305, "reverseOctetDeltaCount", DataType.UNSIGNED64)),
        ("reverseVRFname", (236, 29305, "reverseVRFname", DataType.STRING)),
        ("ie_33002", (33002, 0, "ie_33002", DataType.UNKNOWN)),
        ("E5951_128", (128, 5951, "e5951_128", DataType.UNKNOWN)),
        ("e5951_128_text", (128, 5951, "e5951_128_text", DataType.STRING)),
        ("ie_97_hex", (97, 0, "ie_97_hex", DataType.OCTET_ARRAY)),
        ("e4294967295_65535", (65535, 4294967295, "e4294967295_65535", DataType.UNKNOWN)),
    ],
)
def test_elements_are_found_by_name(name: str, expected: tuple[int, int, str, DataType]) -> None:
    found = element_named(name)
    assert found is not None
    assert (found.id, found.enterprise, found.name, found.type) == expected


@pytest.mark.parametrize(
    "name",
    ["nothing", "ie_8", "e0_8", "e29305_8", "ie_65536", "e4294967296_1", "e1_65536", "ie_", "e_1", "ie_1_2",
     "e1_2_float", "sourceIPv4Address_hex", "reversesource", "ie_٣"],
)  # fmt: skip
def test_what_is_no_element_is_not_found(name: str) -> None:
    assert element_named(name) is None
    assert flow_column(name) is None


def test_numbers_give_the_name_back() -> None:
    for each in (*registered_elements().values(), element(8, 29305), element(33002), element(128, 5951)):
        assert element_named(each.name) == each


def test_columns_have_types_of_the_language() -> None:
    for name, spec in flow_columns().items():
        assert flow_column(name.upper()) == spec
        Type(spec.type)
        assert (spec.bits == 0) == (spec.type in ("text", "float", "boolean")), name
    assert set(FLOW_COLUMNS) <= set(flow_columns())


def test_records_of_the_old_versions_have_the_length_that_they_have() -> None:
    assert (NETFLOW_V5.min_record_bytes, NETFLOW_V7.min_record_bytes) == (48, 52)
