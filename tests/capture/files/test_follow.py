"""Captures that are followed: a file that grows, one that is replaced, folders in which writers rotate.

Every test writes in the thread that reads, between two blocks, so that each order of events is the same in every run.

* Files written piece by piece catch a cut record that is given up, or read twice once it is whole.
* Every way to rotate catches files that are missed or read twice, and a wrong order.
* A writer in its own thread, as fast as it can, detects errors with changes between two polls.
"""

import gzip
import json
import os
import shutil
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError
from capture.files.positions import FilePosition
from capture.files.rotation import StoredProgress
from capture.files.stream import StreamedCapture
from capture.open import open_capture
from tests.references.compressed_bytes import COMPRESS
from tests.references.followed_captures import OLD, Follower, capture_of, write
from tests.references.pcap_bytes import pcap_bytes
from tests.references.pcapng_bytes import enhanced, interface, section

RECORD = 76


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "captures").mkdir()
    return tmp_path / "captures"


def test_a_file_is_read_as_it_grows_and_a_cut_record_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    data = capture_of(range(6))
    write(path, b"")
    following = Follower(path)
    following.idle()
    append(path, data[:10])
    following.idle()
    append(path, data[10 : 24 + RECORD + 20])
    assert following.read(1) == [0]
    following.idle()
    append(path, data[24 + RECORD + 20 : 24 + 3 * RECORD])
    assert following.read(2) == [1, 2]
    append(path, data[24 + 3 * RECORD :] + b"\1")
    assert following.read(3) == [3, 4, 5]
    following.idle()
    assert following.capture.consumed == len(data) + 1
    assert following.end() == {"files": 1}


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_compressed_file_is_read_as_it_grows(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "growing"
    data = capture_of(range(4))
    write(path, b"")
    following = Follower(path)
    for piece, records in ((data[:100], 1), (data[100:200], 1), (data[200:], 2)):
        member = COMPRESS[codec](piece)
        append(path, member[:9])
        following.idle()
        append(path, member[9:])
        following.read(records)
    assert following.times == [0, 1, 2, 3]
    assert following.end() == {"files": 1}


def test_a_pcapng_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcapng"
    write(path, section() + interface())
    following = Follower(path)
    following.idle()
    append(path, enhanced(1, bytes(60)) + interface())
    append(path, enhanced(2, bytes(60), number=1)[:-4])
    assert following.read(1) == [1000]
    following.idle()
    append(path, enhanced(2, bytes(60), number=1)[-4:])
    assert following.read(1) == [2000]
    assert following.end() == {"files": 1}


def test_a_file_that_is_renamed_is_read_to_its_end_and_then_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcap"
    write(path, capture_of(range(2)))
    following = Follower(path)
    assert following.read(2) == [0, 1]
    path.rename(tmp_path / "trace.pcap.1")
    following.idle()
    append(tmp_path / "trace.pcap.1", capture_of(range(2, 4))[24:])  # its writer has it open
    assert following.read(2) == [2, 3]
    write(tmp_path / "trace.pcap.1", (tmp_path / "trace.pcap.1").read_bytes(), 0)
    write(path, capture_of(range(4, 6)))
    assert following.read(2) == [4, 5]
    path.unlink()
    following.idle()
    write(path, capture_of(range(6, 7)))
    assert following.read(1) == [6]
    assert following.end() == {"files": 3}


def test_a_file_that_is_truncated_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcap"
    write(path, capture_of(range(2)) + bytes(9))
    following = Follower(path)
    following.read(2)
    os.truncate(path, 0)
    following.idle()
    append(path, capture_of(range(5, 8)))
    assert following.read(3) == [5, 6, 7]
    write(path, capture_of(range(8, 20)))  # shorter and longer again before anybody looks
    assert following.read(12) == list(range(8, 20))
    write(path, capture_of(range(20, 32)))  # of the same size
    assert following.read(12) == list(range(20, 32))
    assert following.end() == {"files": 4, "replaced": 3, "cut_in_record_header": 1}


@pytest.mark.parametrize("codec", ["plain", *COMPRESS])
def test_a_file_that_is_rewritten_with_the_same_first_packet_is_read_anew(codec: str, tmp_path: Path) -> None:
    """An edited copy has the header and the first packet of the original, and other records at the position."""
    path = tmp_path / "trace.pcap"
    pack = COMPRESS.get(codec, bytes)
    write(path, pack(capture_of(range(8))))
    following = Follower(path)
    following.read(8)
    _, *later = [(ts, bytes([ts]) * (20 + ts)) for ts in range(60)]
    edited = pcap_bytes([(0, bytes(60)), *later])
    before = path.stat().st_ino
    write(path, pack(edited))
    assert path.stat().st_ino == before
    assert following.read(60) == list(range(60))
    following.idle()
    append(path, pack(pcap_bytes([(70, bytes(60))])[24:]))
    assert following.read(1) == [70]
    counted = following.end()
    assert (counted["files"], counted["replaced"]) == (2, 1)


def test_a_file_rewritten_after_its_turn_is_read_anew_and_one_that_grew_is_not(folder: Path) -> None:
    write(folder / "a", capture_of(range(4)), 0)
    write(folder / "b", capture_of(range(4)), 1)
    write(folder / "c", capture_of(range(20, 21)), 2)
    following = Follower(folder)
    assert following.read(9) == [0, 1, 2, 3, 0, 1, 2, 3, 20]
    write(folder / "a", capture_of(range(6)), 3)  # the same records and two more
    write(folder / "b", pcap_bytes([(0, bytes(60)), *((ts, bytes(9)) for ts in range(11, 30))]), 4)
    assert following.read(22) == [4, 5, 0, *range(11, 30)]
    following.idle()
    assert following.end() == {"files": 4, "replaced": 1}


def test_a_closed_file_that_grows_is_not_taken_for_another(folder: Path) -> None:
    write(folder / "a", capture_of(range(4)) + b"\xff" * 50, 0)  # damaged, so nothing more is expected of it
    write(folder / "b", capture_of(range(20, 21)), 1)
    following = Follower(folder)
    assert following.read(5) == [0, 1, 2, 3, 20]
    for _ in range(2):
        append(folder / "a", capture_of(range(50)))
        following.idle()
        following.idle()
    assert following.end() == {"files": 2, "impossible_record_length": 1}


def test_what_is_followed_alone_must_be_a_capture(tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", b"no capture at all, whatever its name says")
    following = Follower(tmp_path / "notes.txt")
    with pytest.raises(InputError, match=r"notes\.txt: not a pcap or pcapng capture: it begins with 6e 6f"):
        following.idle()
    with pytest.raises(InputError, match=r"absent\.pcap: cannot be read: No such file"):
        open_capture(tmp_path / "absent.pcap", follow=True)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        open_capture(tmp_path / "absent" / "*.pcap", follow=True)


def test_a_pipe_is_followed_as_it_always_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    capture = open_capture(tmp_path / "fifo", follow=True)
    assert type(capture) is StreamedCapture
    capture.close()


@pytest.mark.parametrize(
    "names",
    [
        ["trace", "trace1", "trace2", "trace10", "trace11"],  # tcpdump -C
        ["t-235900.pcap", "t-000000.pcap", "t-000100.pcap"],  # tcpdump -G with a name that begins anew each day
        ["x_00001_20260101.pcapng", "x_00002_20260101.pcapng"],  # dumpcap -b
    ],
)
def test_files_are_read_in_the_order_of_their_last_change(names: list[str], folder: Path) -> None:
    for place, name in enumerate(names):
        write(folder / name, capture_of(range(place, place + 1)), place)
    following = Follower(folder)
    assert following.read(len(names)) == list(range(len(names)))
    following.idle()
    write(folder / "next", capture_of(range(90, 92)))
    assert following.read(2) == [90, 91]
    assert following.end() == {"files": len(names) + 1}


def test_files_changed_at_the_same_time_are_read_in_the_order_of_their_numbers(folder: Path) -> None:
    for number in (10, 9, 1, 100, 2):
        write(folder / f"trace{number}.pcap", capture_of(range(number, number + 1)), 0)
    following = Follower(folder)
    assert following.read(5) == [1, 2, 9, 10, 100]


def test_a_ring_of_files_is_read_round_and_round(folder: Path) -> None:
    following = Follower(folder)
    following.idle()
    for place in range(11):  # three files, each truncated when its turn comes, as tcpdump -W does
        write(folder / f"ring{place % 3}", capture_of(range(10 * place, 10 * place + 1 + place % 4)), place)
        assert following.read(1 + place % 4) == list(range(10 * place, 10 * place + 1 + place % 4))
    assert following.end() == {"files": 11, "replaced": 8}


def test_a_file_is_finished_before_the_next_one_and_read_on_where_it_grows_again(folder: Path) -> None:
    data = capture_of(range(6))
    write(folder / "a", data[: 24 + 2 * RECORD + 5], 0)
    following = Follower(folder)
    assert following.read(2) == [0, 1]
    write(folder / "b", capture_of(range(100, 102)), 1)
    assert following.read(2) == [100, 101]
    append(folder / "a", data[24 + 2 * RECORD + 5 :])
    os.utime(folder / "b", ns=(OLD, OLD))
    assert following.read(4) == [2, 3, 4, 5]
    os.utime(folder / "a", ns=(OLD, OLD))  # touched, and nothing else
    following.idle()
    assert following.end() == {"files": 2, "cut_in_record_header": 1}


def test_a_file_grows_on_until_there_is_another(folder: Path) -> None:
    write(folder / "a", capture_of(range(1)), 0)
    following = Follower(folder)
    following.read(1)
    for ts in range(1, 4):
        append(folder / "a", capture_of(range(ts, ts + 1))[24:])
        assert following.read(1) == [ts]
    write(folder / "b", b"", 1)
    append(folder / "a", capture_of(range(4, 5))[24:])
    assert following.read(1) == [4]
    assert following.end() == {"files": 1}


def test_what_is_renamed_or_compressed_afterwards_is_not_read_again(folder: Path) -> None:
    write(folder / "a.pcap", capture_of(range(2)), 0)
    write(folder / "b.pcap", capture_of(range(2, 4)), 1)
    following = Follower(folder)
    assert following.read(4) == [0, 1, 2, 3]
    (folder / "a.pcap").rename(folder / "a.old")
    write(folder / "b.pcap.gz", gzip.compress(capture_of(range(2, 4))), 2)
    following.idle()
    (folder / "b.pcap").unlink()
    write(folder / "c.pcap", capture_of(range(4, 5)), 3)
    assert following.read(1) == [4]
    following.idle()
    assert following.end() == {"files": 3}


def test_what_was_compressed_is_not_read_again_after_a_restart(folder: Path) -> None:
    for place in range(4):
        write(folder / f"{place}.pcap", capture_of(range(place, place + 1)), place)
    following = Follower(folder)
    assert following.read(4) == [0, 1, 2, 3]
    following.idle()
    for place in range(2):  # before the restart: they are passed over, and remembered
        write(folder / f"{place}.pcap.gz", gzip.compress((folder / f"{place}.pcap").read_bytes(), 0), place)
        following.idle()
        (folder / f"{place}.pcap").unlink()
        following.idle()
    write(folder / "2.pcap.gz", gzip.compress((folder / "2.pcap").read_bytes(), 0), 2)
    (folder / "2.pcap").unlink()  # while nobody looks
    for _ in range(3):
        following = following.again()
        for _ in range(4):
            following.idle()
    write(folder / "3.pcap.gz", gzip.compress((folder / "3.pcap").read_bytes(), 0), 3)
    following.idle()
    (folder / "3.pcap").unlink()
    following = following.again()
    write(folder / "4.pcap", capture_of(range(4, 5)), 4)
    assert following.read(1) == [4]
    following.idle()
    assert following.end()["files"] == 1  # with the inode of one that is gone, maybe


def test_a_file_that_grew_and_was_compressed_between_two_processes_is_read_on(folder: Path) -> None:
    write(folder / "a.pcap", capture_of(range(3)), 0)
    following = Follower(folder)
    assert following.read(2) == [0, 1]
    position = following.place.text()  # type: ignore[union-attr]
    following.leave()
    write(folder / "a.pcap.gz", gzip.compress(capture_of(range(6))), 1)
    (folder / "a.pcap").unlink()
    following = Follower(folder, position).again()  # and the position is known although the first poll read no data
    assert following.read(4) == [2, 3, 4, 5]
    following = following.again()
    following.idle()
    assert following.end() == {}


def test_a_position_in_another_format_is_refused_with_a_remedy(folder: Path, tmp_path: Path) -> None:
    """The first one is as it was written before it had names and was compressed."""
    old = {"device": 1, "inode": 2, "size": 5, "changed": 3, "head": "d4c3b2a1", "records": 4, "closed": True}
    for position, number in (({"files": [old]}, 1), ({"form": 3, "files": {"a": 1}}, 3)):
        with pytest.raises(InputError) as refused:
            Follower(folder, json.dumps(position))
        assert str(refused.value) == (
            f"{folder}: the newest segment of the spool stores the position in format {number}, expected format 2: "
            "another version of Wiretide has written it; continue with that version, or use another folder for the "
            "spool; the node then reads the whole input that still exists"
        )
    write(tmp_path / "a", data := capture_of(range(3)))
    place = FilePosition(open_capture(tmp_path / "a"))
    place.resume(json.dumps({"size": len(data), "records": 2}))  # of format 1, which is still the format of files
    assert place.records == 2
    with pytest.raises(InputError, match=r"in format 2, expected format 1: another version"):
        place.resume(json.dumps({"form": 2, "size": len(data), "records": [2]}))


def test_files_are_known_again_where_their_device_has_another_number(folder: Path) -> None:
    write(folder / "a", capture_of(range(2)), 0)
    write(folder / "b", capture_of(range(2, 4)), 1)
    write(folder / "c", capture_of(range(4, 6)), 2)
    following = Follower(folder)
    assert following.read(5) == [0, 1, 2, 3, 4]
    places: list[StoredProgress] = [(name, device + 1, *rest) for name, device, *rest in following.capture.position()]  # type: ignore[misc]
    following.leave()
    write(folder / "b", capture_of(range(10, 12)), 1)  # the same inode, and another beginning
    following = Follower(folder)
    following.capture.resume(places)
    assert following.read(3) == [10, 11, 5]
    following.idle()


@pytest.mark.slow("a long folder")
def test_a_position_is_short_whatever_the_files_hold(folder: Path) -> None:
    for number in range(300):
        write(folder / f"eth0-20260101-{number:06d}.pcap", capture_of(range(number, number + 1)), number)
    following = Follower(folder)
    following.read(300)
    assert following.place is not None
    assert len(following.place.text()) < 300 * 60
    following = following.again()
    following.idle()
    assert following.end() == {}


def test_each_file_has_its_own_format(folder: Path) -> None:
    write(folder / "1", capture_of(range(1)), 1)
    write(folder / "2", pcap_bytes([(1, b"")], 101, order=">"), 2)
    write(folder / "3", section() + interface(12, name="eth7") + enhanced(0, b""), 3)
    write(folder / "4", COMPRESS["zstd"](section(">") + interface(101, ">", name="eth8") + enhanced(0, b"", ">")), 4)
    following = Follower(folder)
    formats, names = [], []
    for _ in range(4):
        following.read(1)
        formats.append(type(following.capture.format).__name__)
        names.append(following.capture.format.interface_names)
    assert formats == ["PcapFormat", "PcapFormat", "PcapngFormat", "PcapngFormat"]
    assert names == [["0"], ["0"], ["eth7"], ["eth8"]]
    assert following.end() == {"files": 4}


def test_what_is_no_capture_is_passed_over_and_counted_once(folder: Path) -> None:
    write(folder / "1.txt", b"these are notes, and long enough to be recognised", 1)
    write(folder / "2.pcap", b"", 2)
    write(folder / "3.pcap", capture_of(range(3, 4)) + b"\xff" * 50, 3)
    write(folder / "4.pcap.gz", gzip.compress(capture_of(range(4, 6)))[:-3], 4)
    write(folder / ".hidden", capture_of(range(90, 91)), 5)
    write(folder / "templates.json", b"{}" * 40, 5)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    write(folder / "6.pcap", capture_of(range(6, 7)), 6)
    following = Follower(folder)
    assert following.read(4) == [3, 4, 5, 6]
    append(folder / "1.txt", b"more notes")
    write(folder / "2.pcap", capture_of(range(2, 3)))
    assert following.read(1) == [2]
    assert following.end() == {
        "files": 6, "refused": 1, "impossible_record_length": 1, "cut_in_compression": 1,
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_passed_over(folder: Path) -> None:
    write(folder / "1", capture_of(range(1)), 1)
    (folder / "1").chmod(0)
    write(folder / "2", capture_of(range(2, 3)), 2)
    following = Follower(folder)
    assert following.read(1) == [2]
    assert following.end() == {"files": 1, "refused": 1}


def test_a_glob_follows_the_files_that_match(folder: Path) -> None:
    write(folder / "eth0-1.pcap", capture_of(range(1)), 1)
    write(folder / "eth1-1.pcap", capture_of(range(50, 51)), 2)
    following = Follower(folder / "eth0-*.pcap")
    following.read(1)
    write(folder / "eth1-2.pcap", capture_of(range(51, 52)), 3)
    write(folder / "eth0-2.pcap", capture_of(range(1, 2)), 4)
    assert following.read(1) == [1]
    assert following.times == [0, 1]
    assert following.end() == {"files": 2}


def test_files_are_missing_from_one_look_to_the_next(folder: Path) -> None:
    write(folder / "1", capture_of(range(1)), 1)
    write(folder / "2", capture_of(range(1, 2)), 2)
    following = Follower(folder)
    following.read(1)
    (folder / "2").unlink()
    shutil.rmtree(folder)
    following.idle()
    folder.mkdir()
    write(folder / "3", capture_of(range(3, 4)), 3)
    assert following.read(1) == [3]


class RotatingWriter(threading.Thread):
    """Writes records 0, 1, 2 … in small pieces, as fast as it can, and rotates by one of several habits."""

    def __init__(self, folder: Path, habit: str, seed: int, read: list[int]) -> None:
        super().__init__()
        self.folder = folder
        self.habit = habit
        self.random = Random(seed)
        self.read = read
        self.written = 0

    def run(self) -> None:
        for number in range(12):
            if self.habit == "ring" and number >= 3:  # what is overwritten before it was read is lost
                while len(self.read) < self.written:
                    time.sleep(0.001)
            name = {"many": f"trace{number}", "ring": f"ring{number % 3}"}.get(self.habit, "trace")
            path = self.folder / name
            if self.habit == "rename" and number:
                time.sleep(0.01)  # longer than a step of file times, so no two files have the same time
                path.rename(self.folder / f"trace.{number}")
            with path.open("wb", buffering=0) as file:
                upto = self.written + self.random.randrange(1, 40)
                data = capture_of(range(self.written, upto))
                self.written = upto
                places = sorted({0, len(data), *self.random.choices(range(len(data)), k=self.random.randrange(9))})
                for start, end in pairwise(places):
                    file.write(data[start:end])


@pytest.mark.parametrize("habit", ["many", "rename", "ring"])
@pytest.mark.parametrize("seed", range(4))
def test_a_writer_that_rotates_loses_nothing(
    habit: str, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capture.files.rotation.QUIET_SECONDS", 0.02)
    following = Follower(folder)
    writer = RotatingWriter(folder, habit, seed, following.times)
    writer.start()
    while writer.is_alive() or len(following.times) < writer.written:
        following.idle(once=True)
    writer.join()
    assert following.times == list(range(writer.written))
    assert set(following.end()) <= {"files", "replaced"}
