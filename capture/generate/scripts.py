"""Write the packets of a user's scapy script as a classic pcap file.

The Python script defines `packets()`, which returns or yields scapy packets, or pairs `(time, packet)`. A time is
exact: an `int` of nanoseconds since 1970, or a `Decimal` or `Fraction` of seconds. A packet without a time uses
`packet.time` if this is a `Decimal`, as in packets that scapy read from a capture file. Otherwise it follows 1 ms
after the previous packet. The first packet determines the link type of the file.

Loading a script runs its code with the rights of the process.
"""

from __future__ import annotations

import struct
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

from capture.errors import InputError, MissingPackageError
from capture.generate.pcap_file import complete_file, file_header, write_all
from capture.generate.profile import TIME_LIMIT
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

FIRST_TIME = 1_700_000_000 * SECOND
"""Default time of the first packet, ns. It is also the default start of a `Profile`."""
GAP_NS = SECOND // 1000
"""Default time between packets, ns."""
MAX_RECORD_BYTES = 262_144
"""Maximum captured bytes of a record that libpcap reads."""
RAW_IP = 101
RAW_IP_LAYERS = ("IP", "IPv6", "IPv46")
"""Link type of packets without link layer, and the names of their first layers in scapy."""

BUFFER_BYTES = 1 << 18
"""Bytes that are collected before they are written to the file."""

EXTRA = "generate"
"""The extra of the package that installs scapy."""

EXPECTED_ITEM = "expected a scapy packet or (time, packet)"


@dataclass(frozen=True, slots=True)
class ScriptSummary:
    """Contents of the file. `min_ts`, `max_ts`: smallest and largest time, ns. `file_size`: bytes."""

    packets: int
    min_ts: int
    max_ts: int
    link_type: int
    file_size: int


def require_scapy(purpose: str) -> None:
    """Raise `MissingPackageError` if scapy is not installed. The first call imports scapy, which takes 0.1 s."""
    try:
        import scapy.packet  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError("scapy", EXTRA, purpose) from error


def generate_from_script(
    script: str | Path,
    path: str | Path,
    *,
    packets: int | None = None,
    snap_length: int = MAX_RECORD_BYTES,
    progress: Callable[[int, int | None], None] | None = None,
) -> ScriptSummary:
    """Run `script` and write up to `packets` packets of its function `packets()` to `path`.

    An existing file is replaced only when all packets are written. `snap_length` limits the captured bytes. `progress`
    is called with the number of packets written and the limit, or None without a limit.

    Raises `InputError` if the script cannot be read, raises an exception, or yields anything except packets of one link
    type with times from 1970 to 2106. Raises `MissingPackageError` without scapy, `ValueError` for arguments out of
    range.
    """
    for name, value, limit in (("packets", packets, None), ("snap_length", snap_length, MAX_RECORD_BYTES)):
        if value is not None and not 1 <= value <= (limit or value):
            raise ValueError(f"{name}: got {value}, expected 1{f'..{limit}' if limit else ' or more'}")
    require_scapy("a scapy script")
    source = _Script(Path(script))
    count, min_ts, max_ts, link_type = 0, TIME_LIMIT, 0, -1
    with complete_file(Path(path)) as file:
        buffer = bytearray()
        for time, frame, wire_length, layer in source.frames():
            packet_link_type = _link_type(layer, source, count + 1)
            if link_type < 0:
                link_type = packet_link_type
                write_all(file, file_header("ns", "<", snap_length, link_type))
            elif packet_link_type != link_type:
                raise InputError(
                    f"{source.path}: packet {count + 1}: got link type {packet_link_type} ({layer.__name__}), expected"
                    f" {link_type}, the link type of packet 1: a pcap file has one link type; write a file for each"
                )
            captured = frame[:snap_length]
            buffer += struct.pack("<IIII", *divmod(time, SECOND), len(captured), wire_length) + captured
            count, min_ts, max_ts = count + 1, min(min_ts, time), max(max_ts, time)
            if len(buffer) >= BUFFER_BYTES:
                write_all(file, memoryview(bytes(buffer)))
                buffer.clear()
            if progress is not None and count & 63 == 0:
                progress(count, packets)
            if count == packets:
                break
        if not count:
            raise InputError(
                f"{source.path}: packets() yielded no packet, expected at least one: without a packet the link type of "
                "the file is unknown"
            )
        write_all(file, memoryview(bytes(buffer)))
        file_size = file.tell()
        if progress is not None:
            progress(count, count)
    return ScriptSummary(count, min_ts, max_ts, link_type, file_size)


class _Script:
    """A user's script. Exceptions of its code are raised as `InputError` with file and line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def frames(self) -> Iterator[tuple[int, bytes, int, type]]:
        """Yield time in ns, bytes, wire length and class of the first layer of each packet."""
        from scapy.packet import Packet

        next_time = FIRST_TIME
        for packet_number, item in enumerate(self._items(), 1):
            time, packet = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
            if not isinstance(packet, Packet):
                raise InputError(f"{self.path}: packet {packet_number}: got {_describe(item)}, {EXPECTED_ITEM}")
            if time is None and isinstance(packet.time, Decimal):
                time = packet.time
            ts = next_time if time is None else self._nanoseconds(time, packet_number)
            next_time = ts + GAP_NS
            with self._convert_errors(f"packet {packet_number} ({packet.name}) cannot be built: "):
                frame = bytes(packet)
            if len(frame) > MAX_RECORD_BYTES:
                raise InputError(
                    f"{self.path}: packet {packet_number}: got {len(frame)} bytes, expected at most {MAX_RECORD_BYTES}:"
                    " libpcap refuses files with longer records"
                )
            yield ts, frame, max(len(frame), packet.wirelen or 0), type(packet)

    def _items(self) -> Iterator[Any]:
        """Run the script. Yield the packets, or pairs of time and packet, of its `packets()`."""
        from scapy.packet import Packet

        module = ModuleType("wiretide_script")
        module.__file__ = str(self.path)
        try:
            text = self.path.read_bytes()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from error
        folder = str(self.path.resolve().parent)
        sys.path.insert(0, folder)  # as Python does for a script that it runs
        sys.modules[module.__name__] = module
        try:
            with self._convert_errors():
                exec(compile(text, str(self.path), "exec"), module.__dict__)
            function = getattr(module, "packets", None)
            if not callable(function):
                got = "no packets" if function is None else f"packets = {_describe(function)}"
                raise InputError(f"{self.path}: got {got}, expected a function: def packets(): yield IP() / UDP()")
            with self._convert_errors():
                result = function()
            if not isinstance(result, Iterable) or isinstance(result, Packet):  # a packet is iterable too
                raise InputError(
                    f"{self.path}: packets() returned {_describe(result)}, expected an iterable of packets"
                )
            with self._convert_errors():
                iterator = iter(result)
            while True:
                with self._convert_errors():
                    try:
                        item = next(iterator)
                    except StopIteration:
                        return
                yield item
        finally:
            sys.modules.pop(module.__name__, None)
            if folder in sys.path:
                sys.path.remove(folder)

    @contextmanager
    def _convert_errors(self, problem: str = "") -> Iterator[None]:
        """Raise exceptions of the script as `InputError`, except Ctrl-C."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except ModuleNotFoundError as error:
            line = self._line(error)
            hint = "; scapy's TLS layers require it: pip install cryptography" if error.name == "cryptography" else ""
            raise InputError(f"{self.path}{line}: {problem}{type(error).__name__}: {error}{hint}") from error
        except (Exception, SystemExit) as error:
            raise InputError(f"{self.path}{self._line(error)}: {problem}{type(error).__name__}: {error}") from error

    def _line(self, error: BaseException) -> str:
        """Return `:` and the line number of the script's innermost frame in a traceback, or "" if there is none."""
        if isinstance(error, SyntaxError) and error.filename == str(self.path):
            return f":{error.lineno}"
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self.path)
        ]
        return f":{lines[-1]}" if lines else ""

    def _nanoseconds(self, time: object, packet_number: int) -> int:
        """Convert a time to ns without floating point. Fractions of a nanosecond are truncated."""
        where = f"{self.path}: packet {packet_number}: got the time {_describe(time)}"
        expected = "expected nanoseconds as an int, or seconds as a Decimal or Fraction"
        if isinstance(time, float):
            raise InputError(f"{where}, {expected}: a float of seconds cannot hold nanoseconds")
        if isinstance(time, bool) or not isinstance(time, int | Decimal | Fraction):
            raise InputError(f"{where}, {expected}")
        try:
            ns = time if isinstance(time, int) else int(Fraction(time) * SECOND // 1)
        except (ValueError, OverflowError) as error:  # a Decimal that is NaN or infinite
            raise InputError(f"{where}, {expected}") from error
        if not 0 <= ns < TIME_LIMIT:
            raise InputError(
                f"{where}, expected 0..{TIME_LIMIT - 1} ns: a pcap record counts seconds from 1970 in 32 bits"
            )
        return ns


def _link_type(layer: type, script: _Script, packet_number: int) -> int:
    """Return the link type of a packet whose first layer is `layer`."""
    from scapy.config import conf

    if layer.__name__ in RAW_IP_LAYERS:
        return RAW_IP
    link_type_by_layer = conf.l2types.layer2num
    if layer not in link_type_by_layer:
        choices = ", ".join(
            sorted({layer_class.__name__ for layer_class in link_type_by_layer} | set(RAW_IP_LAYERS[:2]))
        )
        raise InputError(
            f"{script.path}: packet {packet_number}: got {layer.__name__} as the first layer, expected a layer with a"
            f" link type, such as Ether() / …; imported layers with a link type: {choices}"
        )
    return int(link_type_by_layer[layer])


def _describe(value: object) -> str:
    """Return the type and the first characters of a value, for a message."""
    try:
        text = repr(value)
    except Exception as error:  # a user's own __repr__
        text = f"(no text: {type(error).__name__})"
    return f"{type(value).__name__} {text[:60]}{'…' if len(text) > 60 else ''}"
