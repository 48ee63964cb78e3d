"""`wiretide generate`: write a synthetic capture, or the packets of a scapy script."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capture.units import SECOND
from dashboards.command_options import Argument, Option, UsageError

if TYPE_CHECKING:
    from capture.generate import Attack, Conversations

SCRIPT_PARAMETERS = ("output", "script", "packets", "snap")
"""Parameters that can be combined with a script. The other parameters describe synthetic traffic."""
SNAP, SNAP_WITH_CONTENTS = 86, 65535
"""Defaults of `--snap` (captured bytes per packet): only the headers; whole packets with `--traffic`."""


def generate(
    context: typer.Context,
    output: Annotated[Path, Argument(metavar="FILE", help="The capture to write (classic pcap).")],
    script: Annotated[
        Path | None,
        Option(
            "--from",
            metavar="SCRIPT",
            help="Run a scapy script and write its packets: the script's packets() yields packets or (time, packet).",
        ),
    ] = None,
    packets: Annotated[
        int | None, Option(help="Number of packets, without conversations and steps. Or use --duration.")
    ] = None,
    duration: Annotated[float | None, Option(help="Length in seconds; or use --packets.")] = None,
    rate: Annotated[float, Option(help="Packets per second.")] = 100_000,
    groups: Annotated[int, Option(help="Number of distinct address pairs.")] = 100_000,
    skew: Annotated[float, Option(help="Zipf exponent of the pairs; 0: all pairs are equally frequent.")] = 1.0,
    ipv6: Annotated[float, Option(help="Share of IPv6 pairs, 0 to 1.")] = 0.1,
    vlan: Annotated[int, Option(help="Number of VLAN tags of each packet.")] = 0,
    disorder: Annotated[
        str,
        Option(
            help="none, band (packets are late by up to --span) or blocks (packets are shuffled in blocks of --span)."
        ),
    ] = "none",
    span: Annotated[float, Option(help="Seconds by which packets are late (band), or the length of the blocks.")] = 1.0,
    lull: Annotated[
        list[str] | None,
        Option(metavar="FROM-TO", help="A time without packets, in seconds from the start. Repeatable."),
    ] = None,
    attack: Annotated[
        list[str] | None,
        Option(
            metavar="KIND:FROM-TO:RATE",
            help="Add an attack: its seconds, and packets/s (syn-flood, port-scan, dns-amplification) or steps/s "
            "(scan-and-call-back, beacon, password-guessing, exfiltration, pulses, silent-server, "
            "lost-contacts). Repeatable.",
        ),
    ] = None,
    traffic: Annotated[
        list[str] | None,
        Option(
            metavar="KIND[:RATE]",
            help="Add RATE conversations per second (default: 10) of dns, http, tls, sip, gre, ipip, vxlan or "
            "gtp. Repeatable.",
        ),
    ] = None,
    snap: Annotated[
        int | None,
        Option(help="Maximum bytes captured of each packet. [default: 86; whole packets with --traffic or --from]"),
    ] = None,
    link_type: Annotated[int, Option(help="Link type: 1 Ethernet, 101 raw IP, 113 and 276 Linux cooked, 0 null.")] = 1,
    skewed_clock: Annotated[float, Option(help="Seconds to add to every timestamp.")] = 0.0,
    seed: Annotated[int, Option(help="Seed of the random values. The same seed writes the same file.")] = 1,
) -> None:
    """Write a synthetic capture, or the packets of a scapy script.

    The options select rate, address pairs, disorder, lulls, attacks and conversations.

    \b
    wiretide generate trace.pcap --duration 60 --rate 5000 --traffic dns:20
    wiretide generate trace.pcap --from script.py
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    if output.suffix.lower() == ".pcapng":
        raise UsageError(f"{output}: got the suffix of pcapng, expected a name such as {output.stem}.pcap")
    if script is not None:
        _write_script(context, script, output, packets, snap)
        return
    from capture.generate import Profile
    from capture.generate import generate as write
    from dashboards.output.console import progress_bar

    if packets is None and duration is None:
        packets = 1_000_000
    try:
        profile = Profile(
            packets=packets,
            duration=None if duration is None else _nanoseconds(duration),
            rate=rate, groups=groups, skew=skew, ipv6=ipv6, disorder=disorder, seed=seed,
            snap_length=snap if snap is not None else SNAP_WITH_CONTENTS if traffic else SNAP, link_type=link_type,
            disorder_span=_nanoseconds(span) if disorder != "none" else 0,
            vlan_depths=(0.0,) * vlan + (1.0,),
            lulls=tuple(map(_parse_interval, lull or [])),
            attacks=tuple(map(_parse_attack, attack or [])),
            conversations=tuple(map(_parse_conversations, traffic or [])),
            clock_offset=_nanoseconds(skewed_clock),
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from error
    with progress_bar("packets") as progress:
        summary = write(profile, output, progress)
    seconds = (summary.max_ts - summary.min_ts) / 1e9
    amounts = f"{summary.groups:,} address pairs, {summary.file_size:,} bytes"
    print(f"{output}: {summary.packets:,} packets over {seconds:,.1f} s, {amounts}")


def _write_script(context: typer.Context, script: Path, output: Path, packets: int | None, snap: int | None) -> None:
    """Write the packets of a script. Raises `UsageError` for options that describe synthetic traffic."""
    from capture.generate import generate_from_script
    from dashboards.output.console import progress_bar

    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if given is not None and given.name == "COMMANDLINE" and parameter.name not in SCRIPT_PARAMETERS:
            raise UsageError(
                f"{parameter.opts[0]} is for synthetic traffic; with --from only --packets and --snap are allowed"
            )
    limits = {} if snap is None else {"snap_length": snap}
    try:
        with progress_bar("packets") as progress:
            summary = generate_from_script(script, output, packets=packets, progress=progress, **limits)
    except ValueError as error:
        raise UsageError(str(error)) from error
    seconds = (summary.max_ts - summary.min_ts) / 1e9
    amounts = f"link type {summary.link_type}, {summary.file_size:,} bytes"
    print(f"{output}: {summary.packets:,} packets over {seconds:,.1f} s, {amounts}")


def _nanoseconds(seconds: float) -> int:
    nanoseconds = seconds * SECOND
    if not math.isfinite(nanoseconds):
        raise ValueError(f"got {seconds} seconds, expected a finite number")
    return round(nanoseconds)


def _parse_interval(text: str) -> tuple[int, int]:
    start, dash, end = text.partition("-")
    if not dash:
        raise ValueError(f"{text}: expected FROM-TO in seconds, such as 60-120")
    return _nanoseconds(float(start)), _nanoseconds(float(end))


def _parse_conversations(text: str) -> Conversations:
    from capture.generate import Conversations

    kind, colon, rate = text.partition(":")
    return Conversations(kind, float(rate)) if colon else Conversations(kind)


def _parse_attack(text: str) -> Attack:
    from capture.generate import Attack

    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(f"{text}: expected KIND:FROM-TO:RATE, such as syn-flood:60-120:5000")
    kind, when, rate = parts
    return Attack(kind, *_parse_interval(when), float(rate))
