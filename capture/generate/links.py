"""The three links of the demo: two busy main links with different clocks, and a nearly idle, late control link."""

from __future__ import annotations

from pathlib import Path

from capture.generate.attacks import Attack
from capture.generate.profile import Profile
from capture.generate.write import Summary, generate
from capture.units import SECOND

MAIN2_OFFSET = 3 * SECOND
CONTROL_OFFSET = -20 * SECOND
"""Offsets of the links' clocks, ns. The clock of Main1 is correct."""
MAIN_MAX_LATENESS = 2 * SECOND
CONTROL_MAX_LATENESS = 10 * SECOND
"""Maximum lateness of a packet on the main links and on the control link, ns."""
CONTROL_RATE = 0.5
"""Packets per second of the control link."""


def three_links(folder: str | Path, duration_s: float, rate: float, seed: int = 1) -> dict[str, Summary]:
    """Write `Main1.pcap`, `Main2.pcap` and `Control.pcap` into `folder`, which is created. Return their summaries.

    * Main1 sends `rate` packets/s for `duration_s` seconds, Main2 `0.6 * rate`. Packets are up to 2 s late. Main2's
      clock is 3 s ahead.
    * Control sends one packet per 2 s, up to 10 s late. Its clock is 20 s slow. It has two lulls: a third and a sixth
      of the duration.
    * Main1 has a SYN flood of `rate` packets/s in the middle fifth of the duration, and then a port scan.

    Raises `ValueError` for durations below 20 s, in which Control would have no late packet.
    """
    if duration_s < 20:
        raise ValueError(
            f"duration_s: got {duration_s}, expected at least 20: the control link sends one packet in 2 s and is "
            "silent half of the time"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    duration = round(duration_s) * SECOND
    sixth = duration // 6
    flood = (duration * 2 // 5, duration * 3 // 5)
    main1 = Profile(
        duration=duration,
        rate=rate,
        groups=20_000,
        arp=0.002,
        fragments=0.005,
        vlan_depths=(0.7, 0.3),
        disorder="band",
        disorder_span=MAIN_MAX_LATENESS,
        attacks=(
            Attack("syn-flood", *flood, rate),
            Attack("port-scan", flood[1], min(flood[1] + 10 * SECOND, duration), max(1.0, rate / 10)),
        ),
        seed=3 * seed,
    )
    main2 = Profile(
        duration=duration,
        rate=rate * 0.6,
        groups=10_000,
        ipv6=0.3,
        arp=0.002,
        disorder="band",
        disorder_span=MAIN_MAX_LATENESS,
        clock_offset=MAIN2_OFFSET,
        seed=3 * seed + 1,
    )
    control = Profile(
        duration=duration,
        rate=CONTROL_RATE,
        groups=20,
        skew=0.5,
        tcp=0.3,
        udp=0.4,
        icmp=0.3,
        disorder="band",
        disorder_span=CONTROL_MAX_LATENESS,
        clock_offset=CONTROL_OFFSET,
        lulls=((sixth, 3 * sixth), (4 * sixth, 5 * sixth)),
        seed=3 * seed + 2,
    )
    return {
        name: generate(profile, folder / f"{name}.pcap")
        for name, profile in (("Main1", main1), ("Main2", main2), ("Control", control))
    }
