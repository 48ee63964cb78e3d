"""`wiretide generate`: a synthetic capture, or the packets of a scapy script."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capture.units import SECOND

if TYPE_CHECKING:
    from capture.generate import Attack, Conversations

WITH_SCRIPT = ("output", "script", "packets", "snap")
"""Parameters that a script leaves open; the others describe synthetic traffic."""
SNAP, SNAP_WITH_CONTENTS = 86, 65535
"""Bytes captured of each packet if `--snap` is not given: headers, or whole packets of conversations."""


def generate(
    context: typer.Context,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The capture to write (classic pcap).")],
    script: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="SCRIPT",
            help="Write the packets of a scapy script, which is run: its packets() yields packets or (time, packet).",
        ),
    ] = None,
    packets: Annotated[int | None, typer.Option(help="Packets in all, without --traffic; or give --duration.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds in all; or give --packets.")] = None,
    rate: Annotated[float, typer.Option(help="Packets per second.")] = 100_000,
    groups: Annotated[int, typer.Option(help="Distinct address pairs.")] = 100_000,
    skew: Annotated[float, typer.Option(help="Zipf exponent of the pairs; 0 makes them equal.")] = 1.0,
    ipv6: Annotated[float, typer.Option(help="Share of the pairs that are IPv6.")] = 0.1,
    vlan: Annotated[int, typer.Option(help="VLAN tags of each packet.")] = 0,
    disorder: Annotated[
        str, typer.Option(help="none, band (late by up to the span) or blocks (shuffled in blocks).")
    ] = "none",
    span: Annotated[float, typer.Option(help="Span of the disorder, in seconds.")] = 1.0,
    lull: Annotated[
        list[str] | None, typer.Option(metavar="FROM-TO", help="Silence, in seconds from the start.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:FROM-TO:RATE",
            help="syn-flood, port-scan or dns-amplification, with its seconds and packets/s.",
        ),
    ] = None,
    traffic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:RATE]",
            help="Add conversations (10 per second) of dns, http, tls, sip, gre, ipip, vxlan or gtp, such as dns:50.",
        ),
    ] = None,
    snap: Annotated[
        int | None,
        typer.Option(
            help="Bytes captured of each packet at most. [default: 86; whole packets with --traffic or --from]"
        ),
    ] = None,
    link_type: Annotated[int, typer.Option(help="1 Ethernet, 101 raw IP, 113 and 276 Linux cooked, 0 null.")] = 1,
    skewed_clock: Annotated[float, typer.Option(help="Seconds added to every timestamp.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same file.")] = 1,
) -> None:
    """Write a synthetic capture.

    Options select rate, groups, skew, disorder, lulls, attacks and conversations.

    Example: wiretide generate trace.pcap --duration 60 --rate 5000 --traffic dns:20 --traffic tls

    With --from it writes the packets of a scapy script: wiretide generate trace.pcap --from script.py
    """
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
            duration=None if duration is None else _ns(duration),
            rate=rate, groups=groups, skew=skew, ipv6=ipv6, disorder=disorder, seed=seed,
            snap_length=snap if snap is not None else SNAP_WITH_CONTENTS if traffic else SNAP, link_type=link_type,
            disorder_span=_ns(span) if disorder != "none" else 0,
            vlan_depths=(0.0,) * vlan + (1.0,),
            lulls=tuple(_interval(each) for each in lull or []),
            attacks=tuple(_attack(each) for each in attack or []),
            conversations=tuple(_conversations(each) for each in traffic or []),
            clock_offset=_ns(skewed_clock),
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with progress_bar("packets") as progress:
        summary = write(profile, output, progress)
    seconds = (summary.high - summary.low) / 1e9
    amounts = f"{summary.groups:,} address pairs, {summary.file_size:,} bytes"
    print(f"{output}: {summary.packets:,} packets over {seconds:,.1f} s, {amounts}")


def _write_script(context: typer.Context, script: Path, output: Path, packets: int | None, snap: int | None) -> None:
    """Write the packets of a script. Raises `BadParameter` for options that describe synthetic traffic."""
    from capture.generate import generate_from_script
    from dashboards.output.console import progress_bar

    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if given is not None and given.name == "COMMANDLINE" and parameter.name not in WITH_SCRIPT:
            raise typer.BadParameter(
                f"{parameter.opts[0]}: describes synthetic traffic, expected with --from only --packets and --snap"
            )
    limits = {} if snap is None else {"snap_length": snap}
    try:
        with progress_bar("packets") as progress:
            summary = generate_from_script(script, output, packets=packets, progress=progress, **limits)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    seconds = (summary.high - summary.low) / 1e9
    amounts = f"link type {summary.link_type}, {summary.file_size:,} bytes"
    print(f"{output}: {summary.packets:,} packets over {seconds:,.1f} s, {amounts}")


def _ns(seconds: float) -> int:
    nanoseconds = seconds * SECOND
    if not math.isfinite(nanoseconds):
        raise ValueError(f"got {seconds} seconds, expected a finite number of them")
    return round(nanoseconds)


def _interval(text: str) -> tuple[int, int]:
    start, dash, end = text.partition("-")
    if not dash:
        raise ValueError(f"{text}: got no FROM-TO, expected seconds such as 60-120")
    return _ns(float(start)), _ns(float(end))


def _conversations(text: str) -> Conversations:
    from capture.generate import Conversations

    kind, colon, rate = text.partition(":")
    return Conversations(kind, float(rate)) if colon else Conversations(kind)


def _attack(text: str) -> Attack:
    from capture.generate import Attack

    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(f"{text}: got {len(parts)} parts, expected KIND:FROM-TO:RATE such as syn-flood:60-120:5000")
    kind, when, rate = parts
    return Attack(kind, *_interval(when), float(rate))
