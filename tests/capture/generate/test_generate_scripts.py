"""Packets of a scapy script: exact times, one link type, errors that name the script's line, no half file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wiretide
from capture.errors import InputError
from capture.generate import ScriptSummary, generate_from_script
from tests.harness.command_line import environment, run
from tests.references.generated import records

SECOND = 1_000_000_000
HEAD = "from decimal import Decimal\nfrom fractions import Fraction\nfrom scapy.all import *\n"


def script(folder: Path, text: str, head: str = HEAD) -> Path:
    path = folder / "script.py"
    path.write_text(head + text, "utf-8")
    return path


def made(folder: Path, text: str, **more: int) -> ScriptSummary:
    return generate_from_script(script(folder, text), folder / "made.pcap", **more)


def times(folder: Path) -> list[int]:
    return [record.ts for record in records(folder / "made.pcap")]


def test_times_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    text = """
def packets():
    packet = Ether() / IP() / UDP()
    yield 1700000000123456789, packet
    yield Decimal("1700000000.123456790"), packet
    yield Fraction(5100000000370370373, 3000000000), packet   # a third of a nanosecond above …791
    yield Decimal("0.0000000019"), packet
    yield 2**32 * 10**9 - 1, packet
"""
    summary = made(tmp_path, text)
    assert times(tmp_path) == [1700000000123456789, 1700000000123456790, 1700000000123456791, 1, 2**32 * SECOND - 1]
    assert (summary.packets, summary.min_ts, summary.max_ts) == (5, 1, 2**32 * SECOND - 1)


def test_packets_without_a_time_follow_each_other_by_a_millisecond(tmp_path: Path) -> None:
    made(tmp_path, "def packets():\n    p = IP() / UDP()\n    return [p, p, (5 * 10**9, p), p]\n")
    assert times(tmp_path) == [1_700_000_000_000_000_000, 1_700_000_000_001_000_000, 5 * SECOND, 5_001_000_000]


def test_packets_of_a_capture_keep_its_times_and_lengths(tmp_path: Path) -> None:
    text = """
def packets():
    for place in range(3):
        yield 1700000000123456789 + place, Ether() / IP(dst="10.0.0.9") / UDP() / Raw(bytes(300))
"""
    made(tmp_path, text, snap_length=60)
    (tmp_path / "made.pcap").rename(tmp_path / "first.pcap")
    made(tmp_path, f"def packets():\n    return rdpcap({str(tmp_path / 'first.pcap')!r})\n")
    assert (tmp_path / "made.pcap").read_bytes()[24:] == (tmp_path / "first.pcap").read_bytes()[24:]
    assert {(each.wire_length, len(each.data)) for each in records(tmp_path / "made.pcap")} == {(342, 60)}


@pytest.mark.parametrize(
    ("packet", "link_type"),
    [
        ("Ether() / IP()", 1),
        ("IP() / UDP()", 101),
        ("IPv6() / UDP()", 101),
        ("CookedLinux() / IP()", 113),
        ("PPP() / IP()", 9),
        ("RadioTap() / Dot11()", 127),
    ],
)
def test_the_first_layer_is_the_link_type(tmp_path: Path, packet: str, link_type: int) -> None:
    assert made(tmp_path, f"def packets():\n    yield {packet}\n").link_type == link_type
    assert int.from_bytes((tmp_path / "made.pcap").read_bytes()[20:24], "little") == link_type


def test_both_ip_versions_are_one_link_type(tmp_path: Path) -> None:
    assert made(tmp_path, "def packets():\n    yield IP() / UDP()\n    yield IPv6() / UDP()\n").packets == 2


REFUSED = [
    ("def packets():\n    yield IP()\n    yield 1 // 0\n", "script.py:6: ZeroDivisionError"),
    ("def packets(:\n", "script.py:4: SyntaxError"),
    ("x = 1\nraise ValueError('no \\u2713')\n", "script.py:5: ValueError: no ✓"),
    ("import no_such_module\n", "script.py:4: ModuleNotFoundError: No module named 'no_such_module'"),
    ("def packets():\n    sys.exit(3)\nimport sys\n", "script.py:5: SystemExit: 3"),
    ("", "got no packets, expected a function: def packets()"),
    ("packets = [IP()]\n", "got packets = list [<IP  |>], expected a function"),
    ("def packets():\n    return 5\n", "packets() returned int 5, expected an iterable of packets"),
    ("def packets():\n    return IP() / UDP()\n", "packets() returned IP <IP"),
    ("def packets():\n    return []\n", "packets() yielded no packet, expected at least one"),
    ("def packets():\n    yield IP()\n    yield b'abc'\n", "packet 2: got bytes b'abc', expected a scapy packet"),
    ("def packets():\n    yield None\n", "packet 1: got NoneType None"),
    ("def packets():\n    yield 1, 2, IP()\n", "packet 1: got tuple (1, 2, "),
    ("def packets():\n    yield 1.5, IP()\n", "got the time float 1.5, expected nanoseconds as an int"),
    ("def packets():\n    yield True, IP()\n", "got the time bool True"),
    ("def packets():\n    yield 'now', IP()\n", "got the time str 'now'"),
    ("def packets():\n    yield Decimal('nan'), IP()\n", "got the time Decimal Decimal('NaN')"),
    ("def packets():\n    yield Decimal('Infinity'), IP()\n", "got the time Decimal Decimal('Infinity')"),
    ("def packets():\n    yield -1, IP()\n", "got the time int -1, expected 0..4294967295999999999 ns"),
    ("def packets():\n    yield 2**32 * 10**9, IP()\n", "expected 0..4294967295999999999 ns"),
    ("def packets():\n    yield IP()\n    yield Ether() / IP()\n", "packet 2: got link type 1 (Ether), expected 101"),
    ("def packets():\n    yield UDP() / Raw(b'x')\n", "packet 1: got UDP as the first layer, expected a layer with a"),
    ("def packets():\n    yield IP(ttl='much')\n", "packet 1 (IP) cannot be built: "),
    ("def packets():\n    yield IP() / Raw(bytes(300000))\n", "packet 1"),
    ("def packets():\n    yield IP(), Raw(b'1')\n", "packet 1: got the time IP"),
]


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_a_script_that_cannot_be_written_is_refused_and_the_old_file_stays(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "made.pcap").write_bytes(b"old")
    with pytest.raises(InputError, match=re.escape(told)):
        made(tmp_path, text)
    assert (tmp_path / "made.pcap").read_bytes() == b"old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["made.pcap", "script.py"]


def test_an_error_below_the_script_names_the_line_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "addresses.py").write_text("def third():\n    return [1, 2][2]\n")
    with pytest.raises(InputError, match=r"script\.py:6: IndexError"):
        made(tmp_path, "import addresses\ndef packets():\n    yield IP(src=addresses.third())\n")


def test_a_script_imports_its_neighbours_and_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_script.py").write_text("PORT = 5060\n")
    before = list(sys.path)
    made(tmp_path, "from neighbour_of_script import PORT\ndef packets():\n    yield IP() / UDP(dport=PORT)\n")
    assert sys.path == before
    assert "wiretide_script" not in sys.modules
    [record] = records(tmp_path / "made.pcap")
    assert int.from_bytes(record.data[22:24], "big") == 5060


def test_an_endless_script_ends_at_the_number_of_packets(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    path = script(tmp_path, "def packets():\n    while True:\n        yield IP() / UDP()\n")
    summary = generate_from_script(path, tmp_path / "made.pcap", packets=150, progress=lambda *both: told.append(both))
    assert summary.packets == len(times(tmp_path)) == 150
    assert summary.file_size == (tmp_path / "made.pcap").stat().st_size
    assert told == [(64, 150), (128, 150), (150, 150)]


def test_the_command_writes_what_query_reads(tmp_path: Path) -> None:
    text = "def packets():\n    for n in range(20):\n        yield n * 10**9, Ether() / IP() / UDP(dport=n % 2 + 1)\n"
    script(tmp_path, text)
    status, out, err = run("generate", "made.pcap", "--from", "script.py", "--packets", "7", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out == "made.pcap: 7 packets over 6.0 s, link type 1, 430 bytes\n"
    sql = "SELECT destPort, count(*) FROM packets GROUP BY destPort"
    status, out, err = run("query", "made.pcap", sql, "--format", "csv", cwd=tmp_path)
    assert (status, sorted(out.split())) == (0, ["1,4", "2,3", "destPort,count"])


def test_a_script_that_raises_is_an_error_of_the_input(tmp_path: Path) -> None:
    script(tmp_path, "def packets():\n    yield IP()\n    raise RuntimeError('gone')\n")
    status, out, err = run("generate", "made.pcap", "--from", "script.py", cwd=tmp_path)
    assert (status, out) == (1, "")
    assert err == "wiretide: script.py:6: RuntimeError: gone\n"
    assert not (tmp_path / "made.pcap").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rate", "5"], "--rate is for synthetic traffic"),
        (["--traffic", "dns"], "--traffic is for synthetic traffic"),
        (["--link-type", "1"], "--link-type is for synthetic traffic"),
        (["--snap", "0"], "snap_length: got 0, expected 1..262144"),
        (["--packets", "0"], "packets: got 0, expected 1 or more"),
    ],
)
def test_options_of_synthetic_traffic_are_refused_with_a_script(tmp_path: Path, words: list[str], told: str) -> None:
    script(tmp_path, "def packets():\n    yield IP()\n")
    status, out, err = run("generate", "made.pcap", "--from", "script.py", *words, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert told in err
    assert not (tmp_path / "made.pcap").exists()


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    status, _, err = run("generate", "made.pcap", "--from", "none.py", cwd=tmp_path)
    assert (status, err) == (1, "wiretide: none.py: cannot be read: No such file or directory\n")


@pytest.mark.slow("a process that imports scapy")
def test_ctrl_c_leaves_no_file(tmp_path: Path) -> None:
    text = "def packets():\n    while True:\n        yield IP() / UDP()\n        open('on', 'w').close()\n"
    script(tmp_path, text)
    command = [sys.executable, wiretide.__file__, "generate", "made.pcap", "--from", "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE) as process:
        while not (tmp_path / "on").exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert list(tmp_path.glob(".made.pcap.*.part")) != []
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err) == (130, b"wiretide: stopped\n")
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != "__pycache__") == ["on", "script.py"]


@pytest.mark.parametrize("words", [["--from", "script.py"], ["--traffic", "dns"]])
def test_without_scapy_the_message_names_the_extra(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "script.py").write_text("def packets():\n    return []\n")
    program = f"import sys; sys.modules['scapy'] = None; sys.argv = ['wiretide', 'generate', 'a.pcap', *{words!r}]\n"
    program += "import wiretide; wiretide.main()\n"
    places = os.pathsep.join(map(str, [Path(wiretide.__file__).parent, *sys.path]))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment(PYTHONPATH=places), check=False)
    assert done.returncode == 1
    assert b"requires scapy, which is not installed: pip install 'wiretide[generate]'" in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["script.py"]


def test_generating_without_scripts_and_traffic_does_not_import_scapy(tmp_path: Path) -> None:
    program = "import sys; from capture.generate import Profile, generate; generate(Profile(packets=5), 'a.pcap')\n"
    program += "assert 'scapy' not in sys.modules\n"
    places = os.pathsep.join(map(str, [Path(wiretide.__file__).parent, *sys.path]))
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment(PYTHONPATH=places), check=True)
