"""The folder of a collector: names, bounds, locks and a disk that fails, on a real file system.

The tests detect a file that is overwritten, and names that do not sort by creation time. They detect a folder that
grows beyond its bound, and half a record after a failed write.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from capture.collector.record_files import LOCK_NAME, PCAP_HEADER, RecordFiles, RecordingError, file_name, start_time
from capture.collector.settings import Settings, parse_address, parse_interval, parse_prefix
from capture.errors import InputError, SettingError, WiretideError
from capture.units import parse_size

MEBIBYTE = 1 << 20
START = 1_700_000_000 * 10**9


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pcap"))


def record(files: RecordFiles, *times: int, size: int = 10) -> None:
    for time in times:
        files.start(time)
        files.append(memoryview(bytes(size)))


def test_files_are_named_by_their_start_and_hold_what_was_appended(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path / "a" / "b", MEBIBYTE, None)
    record(files, START, START + 1)
    files.append(memoryview(b"more"))
    files.close()
    files.close()
    assert names(tmp_path / "a" / "b") == ["20231114T221320.000000000Z.pcap", "20231114T221320.000000001Z.pcap"]
    assert (tmp_path / "a" / "b" / file_name(START + 1)).read_bytes() == PCAP_HEADER + bytes(10) + b"more"
    assert (files.file_count, files.bytes) == (2, 2 * (len(PCAP_HEADER) + 10) + 4)


def test_names_never_go_back_and_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / file_name(START + 5)).write_bytes(b"recorded by another run before")
    (tmp_path / "trace.pcap").write_bytes(b"of somebody else")
    for _ in range(2):
        files = RecordFiles(tmp_path, MEBIBYTE, None)
        record(files, START, START - 10**12, START + 6)
        files.close()
    assert names(tmp_path) == [*(file_name(START + 5 + step) for step in range(7)), "trace.pcap"]
    assert (tmp_path / file_name(START + 5)).read_bytes() == b"recorded by another run before"


@pytest.mark.parametrize("name", ["trace.pcap", "20231314T221320.000000000Z.pcap", "20231114T221320.0Z.pcap"])
def test_names_that_are_not_ours_have_no_time(name: str) -> None:
    assert start_time(name) is None


@pytest.mark.parametrize("time", [0, START, START + 999_999_999, 2**32 * 10**9])
def test_a_name_says_its_time(time: int) -> None:
    assert start_time(file_name(time)) == time


def test_the_oldest_files_are_deleted_before_the_bound_is_passed(tmp_path: Path) -> None:
    other = tmp_path / "trace.pcap"
    other.write_bytes(bytes(10 * MEBIBYTE))
    old = tmp_path / file_name(START)
    old.write_bytes(bytes(MEBIBYTE))
    files = RecordFiles(tmp_path, MEBIBYTE, 3 * MEBIBYTE)
    held = []
    for number in range(1, 6):
        record(files, START + number, size=MEBIBYTE - len(PCAP_HEADER))
        held.append(sum(path.stat().st_size for path in tmp_path.glob("2*.pcap")))
    files.close()
    assert held == [2 * MEBIBYTE, *[3 * MEBIBYTE] * 4]
    assert names(tmp_path) == [*(file_name(START + number) for number in (3, 4, 5)), "trace.pcap"]
    assert files.deleted_count == 3
    assert other.stat().st_size == 10 * MEBIBYTE


def test_a_file_that_somebody_has_moved_away_is_no_reason_to_stop(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path, MEBIBYTE, 2 * MEBIBYTE)
    record(files, START, size=MEBIBYTE - len(PCAP_HEADER))
    (tmp_path / file_name(START)).unlink()
    record(files, START + 1, START + 2, size=MEBIBYTE - len(PCAP_HEADER))
    files.close()
    assert names(tmp_path) == [file_name(START + 1), file_name(START + 2)]


def test_one_folder_takes_one_collector_until_it_is_closed(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path, MEBIBYTE, None)
    with pytest.raises(InputError, match="another collector is recording here"):
        RecordFiles(tmp_path, MEBIBYTE, None)
    files.close()
    RecordFiles(tmp_path, MEBIBYTE, None).close()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]  # hidden: a query of the folder does not see it


def test_files_that_a_power_failure_left_without_a_header_are_taken_away(tmp_path: Path) -> None:
    (tmp_path / file_name(START)).write_bytes(PCAP_HEADER[:-1])
    (tmp_path / file_name(START + 1)).write_bytes(PCAP_HEADER)
    (tmp_path / "trace.pcap").touch()
    RecordFiles(tmp_path, MEBIBYTE, None).close()
    assert names(tmp_path) == [file_name(START + 1), "trace.pcap"]


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"cannot record here|File exists"):
            RecordFiles(path, MEBIBYTE, None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot record here: Permission denied"):
        RecordFiles(tmp_path, MEBIBYTE, None)


FULL_DISK = """
import sys
from pathlib import Path
from capture.collector.record_files import RecordFiles, RecordingError
files = RecordFiles(Path(sys.argv[1]), 1 << 20, None)
files.start(1)
files.append(memoryview(bytes(600)))
try:
    files.append(memoryview(bytes(600)))
except RecordingError as error:
    print(error)
files.close()
"""


def test_a_write_that_fails_half_way_leaves_whole_records_only(tmp_path: Path) -> None:
    """The system's bound for the size of a file is the disk here: it takes a part of the write and then refuses."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    [path] = tmp_path.glob("*.pcap")
    assert done.stdout == f"{path}: cannot be written: {os.strerror(errno.EFBIG)}\n"
    assert path.stat().st_size == len(PCAP_HEADER) + 600


def test_a_file_that_cannot_be_deleted_is_said(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path, MEBIBYTE, 2 * MEBIBYTE)
    record(files, START, size=2 * MEBIBYTE)
    (tmp_path / file_name(START)).unlink()
    (tmp_path / file_name(START)).mkdir()  # a folder in its place
    with pytest.raises(RecordingError, match="cannot be deleted to keep the limit"):
        files.start(START + 1)
    files.close()


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_address, "127.0.0.1:2055", ("127.0.0.1", 2055)),
        (parse_address, "2055", ("", 2055)),
        (parse_address, ":0", ("", 0)),
        (parse_address, "[::]:65535", ("::", 65535)),
        (parse_address, "collector:1", ("collector", 1)),
        (parse_size, "0.5Ki", 512),
        (parse_size, "3 MB", 3_000_000),
        (parse_size, "1t", 10**12),
        (parse_interval, "1d", 86_400 * 10**9),
        (parse_interval, "0s", 0),
    ],
)
def test_what_is_written_on_the_command_line_is_read(read: object, text: str, value: object) -> None:
    assert read(text) == value  # type: ignore[operator]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *(
            (parse_address, text)
            for text in ("", "host", "1.2.3.4:", "::1:2055", "h:65536", "h:-1", "[::1]2055", "h:٣")
        ),
        *((parse_size, text) for text in ("", "M", "1X", "-1", "1e9", "1.5.5M", "i")),
        *((parse_interval, text) for text in ("", "5", "m", "1.5h", "-1s", "5 minutes", "1w")),
        *((parse_prefix, text) for text in ("", "10.0.0.1/8", "10.0.0.0/33", "host", "10.0.0.0-10.0.0.9", "::1/129")),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(read: object, text: str) -> None:
    with pytest.raises(SettingError, match=r"expected .*(such as|for example)") as caught:
        read(text)  # type: ignore[operator]
    assert caught.value.status == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"listen": ()}, "at least one HOST:PORT"),
        ({"rotate_size": MEBIBYTE - 1}, "expected at least 1,048,576"),
        ({"rotate_every": 1}, "expected at least 1s"),
        ({"rotate_size": MEBIBYTE, "keep": 2 * MEBIBYTE - 1}, "room for at least two files"),
        ({"exporters": 0}, "expected 1 to 4,096"),
        ({"exporters": 4097}, "expected 1 to 4,096"),
        ({"receive_buffer": 0}, "1 byte to 1 GiB"),
        ({"allow": (parse_prefix("10.0.0.0/8"),) * 1025}, "expected at most 1,024"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(WiretideError, match=message):
        Settings(**({"listen": (("", 1),), "folder": Path("x")} | changed))  # type: ignore[arg-type]
