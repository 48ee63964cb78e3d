"""Decoded flow records compared with those of the oracle."""

from typing import Any

from capture.flows.columns import CORE_COLUMNS

ELEMENTS = (
    "sourceIPv4Address", "destinationIPv6Address", "octetDeltaCount", "flowStartMilliseconds", "flowEndMicroseconds",
    "flowStartNanoseconds", "sourceMacAddress", "applicationId", "applicationName", "userName", "basicList",
    "samplingProbability", "dataRecordsReliability", "mibObjectValueInteger", "postNATSourceIPv4Address",
    "firewallEvent", "reverseOctetDeltaCount", "reverseSourceIPv6Address", "ie_33002", "ie_33002_hex", "e5951_7",
    "e4294967295_7_text", "tcpOptionsFull", "observationTimeMilliseconds", "paddingOctets",
)  # fmt: skip


COLUMNS = [name for name in CORE_COLUMNS if name != "link"] + list(ELEMENTS)


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Compare rows and report only the differences of the first unequal row."""
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        differing = {
            name: (one[name], other[name])
            for name in other
            if one[name] != other[name] and not (one[name] != one[name] and other[name] != other[name])  # a NaN
        }
        assert not differing, f"row {number}"
    assert len(found) == len(expected)
