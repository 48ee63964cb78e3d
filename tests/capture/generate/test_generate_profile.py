"""Profiles that cannot be made are refused when they are made; the message names the field and the consequence."""

import math
import re

import pytest

from capture.generate import Attack, Profile
from capture.units import SECOND

REFUSED = [
    # how much
    ({"packets": None}, "got neither, expected one of them"),
    ({"duration": SECOND}, "got both, expected one of them"),
    ({"packets": 0}, "packets: got 0, expected more than 0: the file would be empty"),
    ({"packets": None, "duration": -1}, "duration: got -1"),
    ({"packets": None, "duration": 10, "rate": 1.0}, "expected time for one packet outside lulls"),
    ({"packets": None, "duration": 10, "lulls": ((0, 10),)}, "the file would be empty"),
    ({"rate": 0.0}, "rate: got 0.0 packets/s"),
    ({"rate": math.nan}, "rate: got nan"),
    ({"rate": 1e-320}, "32 bits"),
    ({"packets": 10**400}, "32 bits"),
    ({"packets": None, "duration": 10**309}, "32 bits"),
    ({"lulls": ((0, 10**309),)}, "32 bits"),
    ({"disorder": "band", "disorder_span": 10**309}, "32 bits"),
    ({"clock_offset": -(10**309)}, "32 bits"),
    ({"rate": 2e9}, "timestamps count nanoseconds"),
    # who
    ({"groups": 0}, "groups: got 0, expected 1..10000000"),
    ({"groups": 10**8}, "each rank takes 9 bytes of memory"),
    ({"skew": -1.0}, "skew: got -1.0"),
    ({"seed": -1}, "seed: got -1"),
    # what
    ({"ipv6": 1.5}, "ipv6: got 1.5, expected a share"),
    ({"tcp": 0.5}, "tcp + udp + icmp: got shares"),
    ({"arp": 0.6, "fragments": 0.6}, "shares of the same packets"),
    ({"arp": 0.1, "link_type": 101}, "it carries IP only"),
    ({"arp": 0.1, "link_type": 0}, "it carries IP only"),
    ({"sizes": ((0, 60, 1.0),)}, "sizes: got lengths 0..60"),
    ({"sizes": ((90, 60, 1.0),)}, "lowest <= highest"),
    ({"sizes": ((60, 70000, 1.0),)}, "no IPv4 packet is longer"),
    ({"sizes": ((60, 70, 0.4),)}, "a sum of 1"),
    ({"sizes": ()}, "a sum of 1"),
    ({"sizes": ((60, 70, 1.4), (80, 90, -0.4))}, "none below 0"),
    ({"vlan_depths": ()}, "vlan_depths: got 0 shares"),
    ({"vlan_depths": (0.2,) * 5}, "the shares of 0, 1, 2 and 3 tags"),
    ({"vlan_depths": (0.5, 0.4)}, "a sum of 1"),
    ({"vlan_depths": (0.5, 0.5), "link_type": 113}, "only Ethernet carries VLAN tags here"),
    # when
    ({"start": -1}, "32 bits"),
    ({"clock_offset": -1_800_000_000 * SECOND}, "32 bits"),
    ({"start": 2**32 * SECOND - 1}, "32 bits"),
    ({"rate": 1e-12}, "32 bits"),
    ({"lulls": ((5, 5),)}, "lulls: got [5, 5)"),
    ({"lulls": ((-5, 5),)}, "0 <= start < end"),
    ({"lull_length": 5, "lull_every": 5}, "the link would never send"),
    ({"lull_length": -5, "lull_every": 5}, "lull_length: got -5"),
    ({"lull_every": 5}, "no lull would happen"),
    ({"lull_length": 1, "lull_every": 10, "packets": 10**6}, "each is kept in memory"),
    ({"disorder": "chaos"}, "expected one of none, band, blocks"),
    ({"disorder": "band"}, "disorder_span: got 0 ns with disorder 'band'"),
    ({"disorder_span": 5}, "expected 0 with none"),
    ({"disorder": "blocks", "disorder_span": -5}, "more than 0 with band and blocks"),
    ({"precision": "us", "start": 1}, "truncating timestamps would move packets into lulls"),
    ({"precision": "us", "lulls": ((1000, 2001),)}, "a time of 2001 ns"),
    # how written
    ({"link_type": 105}, "link_type: got 105, expected one of 0 (null), 1 (Ethernet), 101 (raw IP)"),
    ({"byte_order": "middle"}, "expected little or big"),
    ({"precision": "ms"}, "expected us or ns"),
    ({"snap_length": 0}, "snap_length: got 0 bytes"),
    ({"snap_length": 262145}, "libpcap refuses"),
]


FLOOD = Attack("syn-flood", 10 * SECOND, 20 * SECOND, 5.0)
SCAN = Attack("port-scan", 0, SECOND, 5.0)
UNSEEN = [
    {"packets": None, "duration": 10 * SECOND, "rate": 5.0},  # it ends where the attack begins
    {"packets": 50, "rate": 5.0},
    {"packets": None, "duration": 60 * SECOND, "lulls": ((10 * SECOND, 15 * SECOND), (15 * SECOND, 30 * SECOND))},
    {"packets": None, "duration": 60 * SECOND, "lull_every": 20 * SECOND, "lull_length": 10 * SECOND},
]


@pytest.mark.parametrize("changes", UNSEEN)
def test_an_attack_while_nothing_is_sent_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"attack: got syn-flood in \[10000000000, 20000000000\), expected a time in which"
    ):
        Profile(**{"rate": 100.0, "attacks": (SCAN, FLOOD), **changes})


BEACON = Attack("beacon", 10 * SECOND, 20 * SECOND, 2.0)


@pytest.mark.parametrize("changes", [*UNSEEN, {"duration": 19 * SECOND}, {"lulls": ((11 * SECOND, 12 * SECOND),)}])
def test_a_staged_attack_needs_a_link_that_sends_all_the_time(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"attack: got beacon in .*, expected an interval in which the link sends all"):
        Profile(
            **{
                "rate": 100.0,
                "attacks": (SCAN, BEACON),
                **({} if "packets" in changes else {"duration": 60 * SECOND}),
                **changes,
            }
        )


def test_an_attack_that_lasts_beyond_the_capture_or_into_a_lull_is_made() -> None:
    Profile(duration=11 * SECOND, rate=5.0, attacks=(SCAN, FLOOD))
    Profile(duration=60 * SECOND, rate=5.0, attacks=(FLOOD,), lulls=((11 * SECOND, 40 * SECOND),))


@pytest.mark.parametrize("changes, told", REFUSED)
def test_a_profile_that_cannot_be_made_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Profile(**{"packets": 1000, **changes})


@pytest.mark.parametrize(
    "values, told",
    [
        (("teardrop", 0, 1, 1.0), "expected one of syn-flood, port-scan, dns-amplification"),
        (("syn-flood", 5, 5, 1.0), "got [5, 5)"),
        (("syn-flood", -5, 5, 1.0), "0 <= start < end"),
        (("syn-flood", 0, 5, 0.0), "it would send nothing"),
        (("syn-flood", 0, 5, math.nan), "got nan packets/s"),
        (("beacon", 0, 5 * SECOND, 1.0), "got 5 steps of beacon, expected 8 to 100000"),
        (("pulses", 0, 60 * SECOND, 1e6), "got 6e+07 steps of pulses, expected 8 to 100000"),
    ],
)
def test_an_attack_that_would_not_be_seen_is_refused(values: tuple[str, int, int, float], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Attack(*values)
