"""The file header: which files are read, and the messages for the others.

* Every container of the same records catches a byte order, a unit or an exchanged length read the wrong way.
* The table of foreign files detects a message that does not name the file's format, and an exception that is not an
  InputError.
"""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from capture.errors import InputError
from capture.files.pcap import PcapFormat, parse_header
from capture.open import open_capture
from tests.references.capture_oracle import read_pcap
from tests.references.packet_rows import decode_file
from tests.references.pcap_bytes import NS, pcap_bytes

PACKET = bytes.fromhex("4500001c 00010000 40110000 0a000001 0a000002 0035 1234 0008 0000")
RAW = 101
TIMES = [1_600_000_000 * NS + 123_456_000, 7_000, 2**31 * NS, (2**32 - 1) * NS + 999_999_000]


@pytest.mark.parametrize("version", [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5)])
@pytest.mark.parametrize("nanoseconds, modified", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_container_holds_the_same_records(
    order: str, nanoseconds: bool, modified: bool, version: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "container.pcap"
    records = [(ts, PACKET) for ts in TIMES]
    path.write_bytes(
        pcap_bytes(
            records, RAW, order=order, nanoseconds=nanoseconds, modified=modified, version=version, more_on_wire=100
        )
    )
    rows, skipped, index = decode_file(path)
    assert [(row["ts"], row["len"], row["caplen"], row["srcPort"]) for row in rows] == [
        (ts, 128, 28, 0x35) for ts in TIMES
    ]
    assert (skipped, index.damage, index.records) == ({}, None, 4)
    assert list(read_pcap(path).rows()) == rows


def test_version_2_3_is_read_with_its_lengths_either_way_round(tmp_path: Path) -> None:
    path = tmp_path / "2.3.pcap"
    head = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 3, 0, 0, 65535, RAW)
    path.write_bytes(head + struct.pack("<4I", 1, 0, 28, 90) + PACKET + struct.pack("<4I", 2, 0, 90, 28) + PACKET)
    rows, _, index = decode_file(path)
    assert [(row["len"], row["caplen"]) for row in rows] == [(90, 28), (90, 28)]
    assert index.damage is None


@pytest.mark.parametrize(
    "fraction, nanoseconds, ts",
    [
        (999_999, False, 5 * NS + 999_999_000),
        (1_000_000, False, 6 * NS),
        (2**32 - 1, False, 5 * NS + (2**32 - 1) * 1000),
        (2**32 - 1, True, 5 * NS + 2**32 - 1),
    ],
)
def test_a_fraction_of_a_second_or_more_is_carried_over(
    fraction: int, nanoseconds: bool, ts: int, tmp_path: Path
) -> None:
    path = tmp_path / "fraction.pcap"
    path.write_bytes(
        pcap_bytes([], RAW, nanoseconds=nanoseconds) + struct.pack("<4I", 5, fraction, len(PACKET), 28) + PACKET
    )
    rows, _, index = decode_file(path)
    assert [row["ts"] for row in rows] == [ts]
    assert (index.blocks[0].min_ts, index.blocks[0].max_ts) == (ts, ts)


HEAD = pcap_bytes([], RAW)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "it is empty"),
        (b"\xd4", "it begins with d4"),
        (b"\xd4\xc3\xb2\xa1", "got 4 bytes, expected 24"),
        (HEAD[:23], "truncated in the pcap file header: got 23 bytes, expected 24"),
        (b"time,src,dst\n", "not a pcap or pcapng capture: it begins with 74 69 6d 65"),
        (b"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a", "truncated in the pcapng section header: got 12 bytes, expected 28"),
        (b"\x50\x4b\x03\x04\x14\0", "it is a zip archive; decompress it"),
        (b"\x02\x21\x4c\x18\0\0", "it is lz4-compressed in the legacy format; decompress it"),
        (pcap_bytes([], RAW, version=(3, 0)), "pcap version 3.0 is not supported, expected 2.x"),
    ],
)
def test_a_file_that_is_no_capture_is_refused_by_name_and_reason(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        open_capture(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_what_cannot_be_opened_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, reason in [
        (tmp_path, "Is a directory"),
        (tmp_path / "absent.pcap", "No such file or directory"),
        (tmp_path / "loop", "Too many levels of symbolic links"),
    ]:
        with pytest.raises(InputError, match=f"{path}: cannot be read: {reason}"):
            open_capture(path)


@pytest.mark.skipif(sys.platform != "linux" and os.geteuid() == 0, reason="only Linux lets root give up its rights")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.pcap"
    path.write_bytes(HEAD)
    path.chmod(0)
    tmp_path.chmod(0o755)
    source = f"""
import os, sys
file = {str(path)!r}
from capture.files.capture import Capture
from capture.open import open_capture
from capture.errors import InputError
os.chdir(os.path.dirname(file))
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_capture("secret.pcap")
except InputError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "secret.pcap: cannot be read: Permission denied\n"


def test_a_device_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: got a device or a socket, expected a file or a pipe"):
        open_capture("/dev/zero")


def test_the_upper_bits_of_the_link_type_are_the_frame_check_sequences() -> None:
    header = parse_header(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 0xF400_0001), "x.pcap")
    assert header == PcapFormat(
        big_endian=False, nanoseconds=False, record_header=16, length_order=0, snaplen=96, link_type=1
    )


def test_a_capture_without_records_is_a_capture(tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").write_bytes(HEAD)
    assert decode_file(tmp_path / "empty.pcap")[:2] == ([], {})


def test_more_captures_than_the_limit_of_open_files_can_be_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "one.pcap").write_bytes(pcap_bytes([]))
    script = (
        "import resource, sys; from capture.open import allow_open_files, open_capture;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]));"
        "allow_open_files(300); files = [open_capture(sys.argv[1]) for _ in range(300)]; print(len(files))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "one.pcap"], capture_output=True, text=True, check=True
    )
    assert run.stdout == "300\n"


def test_expecting_bytes_changes_nothing_wherever_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap_bytes([(1, bytes(5000)), (2, bytes(5000))]))
    file = open_capture(path)
    for start, length in ((0, 1), (24, 10**12), (5000, 5000), (9000, 1), (10**9, 1)):
        file.prefault_pages(start, length)
    assert file.data.tobytes() == path.read_bytes()
