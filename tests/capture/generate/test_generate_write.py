"""The file as a whole: the same bytes for every chunk size, no files of an interrupted run, a true summary."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from capture.generate import Attack, Profile, generate, three_links
from tests.references.generated import records

SECOND = 1_000_000_000
PROFILE = Profile(
    packets=5000,
    rate=1000.0,
    groups=300,
    ipv6=0.3,
    arp=0.02,
    fragments=0.05,
    vlan_depths=(0.5, 0.5),
    disorder="band",
    disorder_span=SECOND // 2,
    lulls=((SECOND, 2 * SECOND),),
    attacks=(Attack("syn-flood", 2 * SECOND, 3 * SECOND, 500.0), Attack("dns-amplification", 0, 3 * SECOND, 100.0)),
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("chunk", [1, 7, 1000, 100_000])
@pytest.mark.slow("a large file for each size")
def test_the_file_does_not_depend_on_the_chunk_size(tmp_path: Path, chunk: int) -> None:
    assert generate(PROFILE, tmp_path / "a.pcap") == generate(PROFILE, tmp_path / "b.pcap", chunk=chunk)
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()


def test_another_seed_makes_another_file(tmp_path: Path) -> None:
    generate(PROFILE, tmp_path / "a.pcap")
    generate(replace(PROFILE, seed=2), tmp_path / "b.pcap")
    assert (tmp_path / "a.pcap").read_bytes() != (tmp_path / "b.pcap").read_bytes()


@pytest.mark.parametrize("precision", ["us", "ns"])
def test_the_summary_is_what_the_file_holds(tmp_path: Path, precision: str) -> None:
    summary = generate(replace(PROFILE, precision=precision), tmp_path / "a.pcap")
    packets = list(records(tmp_path / "a.pcap"))
    ts = [packet.ts for packet in packets]
    assert summary.packets == len(packets) == 5000
    assert summary.wire_bytes == sum(packet.wire_length for packet in packets)
    assert (summary.first_ts, summary.last_ts, summary.min_ts, summary.max_ts) == (ts[0], ts[-1], min(ts), max(ts))
    assert summary.file_size == (tmp_path / "a.pcap").stat().st_size


def test_progress_counts_up_to_all_packets(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    generate(PROFILE, tmp_path / "a.pcap", progress=lambda done, total: told.append((done, total)), chunk=1000)
    assert told == sorted(told)
    assert told[-1] == (5000, 5000)


def test_an_interrupted_run_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a.pcap").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        generate(PROFILE, tmp_path / "a.pcap", progress=interrupt)
    assert (tmp_path / "a.pcap").read_bytes() == b"old"
    assert names(tmp_path) == ["a.pcap"]


def test_a_target_that_is_not_a_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a regular file"):
        generate(PROFILE, tmp_path)
    with pytest.raises(ValueError, match="is not a regular file"):
        generate(PROFILE, "/dev/null")


def test_a_chunk_of_no_packets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chunk: got 0 packets"):
        generate(PROFILE, tmp_path / "a.pcap", chunk=0)
    assert names(tmp_path) == []


def test_three_links_are_two_busy_mains_and_a_control_that_is_late_and_silent_for_minutes(tmp_path: Path) -> None:
    made = three_links(tmp_path / "new", duration_s=720, rate=50.0, seed=1)
    assert names(tmp_path / "new") == ["Control.pcap", "Main1.pcap", "Main2.pcap"]
    assert made["Main2"].packets == 720 * 30
    assert made["Main1"].attack_packets == pytest.approx(144 * 50 + 10 * 5, rel=0.03)
    # Main2's clock is 3 s ahead, Control's 20 s behind.
    assert made["Main2"].min_ts - made["Main1"].min_ts == pytest.approx(3 * SECOND, abs=SECOND)
    assert made["Main1"].min_ts - made["Control"].min_ts == pytest.approx(20 * SECOND, abs=5 * SECOND)
    ts = sorted(record.ts for record in records(tmp_path / "new" / "Control.pcap"))
    assert len(ts) < 720
    assert max(later - earlier for earlier, later in pairwise(ts)) >= 4 * 60 * SECOND


def test_three_links_refuse_a_duration_without_control_packets(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected at least 20"):
        three_links(tmp_path, duration_s=5, rate=100.0)
