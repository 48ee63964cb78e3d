"""Names of live interfaces and the commands that refuse them. The tests need no interface."""

from pathlib import Path

import pytest

from capture.errors import InputError, SettingError
from capture.interface_path import InterfaceSettings, is_interface, parse_interface
from capture.live import packet_socket
from capture.metrics import INTERFACE_DOWN, INTERFACE_DROPPED, INTERFACE_UNREADABLE, RECORDS_READ, Samples
from capture.open import open_capture, open_finite
from dashboards.output.run_warnings import run_warnings
from highlevel.inline.input_outcomes import Reading
from queries.pipeline.inputs import bind_files, bind_streams, check_streams
from tests.harness.command_line import run


def test_options_stand_behind_the_name() -> None:
    assert parse_interface("interface:eth0") == InterfaceSettings("eth0", False, 64 << 20, 262_144)
    assert parse_interface("interface:br-1.7@x") == InterfaceSettings("br-1.7@x")
    found = parse_interface(Path("interface:eth0?snaplen=96&ring=5500KiB&promiscuous"))
    assert found == InterfaceSettings("eth0", True, 5500 << 10, 96)
    assert found.blocks == 5


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("interface:", "not the name of an interface"),
        ("interface:a/b", "not the name of an interface"),
        ("interface:sixteen-letters-", "not the name of an interface"),
        ("interface:eth0?fast", "got the option fast; expected interface:NAME"),
        ("interface:eth0?promiscuous=yes", "got the option promiscuous=yes"),
        ("interface:eth0?ring=1MiB", "a ring of 1,048,576 bytes: expected 4 MiB to 2 GiB"),
        ("interface:eth0?ring=4GiB", "expected 4 MiB to 2 GiB"),
        ("interface:eth0?ring=lots", "lots: got no size"),
        ("interface:eth0?snaplen=63", "a snapshot length of 63 bytes: expected 64 to 262,144"),
        ("interface:eth0?snaplen=-1", "got the option snaplen=-1"),
    ],
)
def test_what_cannot_be_is_refused(path: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        parse_interface(path)


def test_an_interface_is_a_link_of_its_name_and_a_file_of_that_name_is_given_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interface:eth0").write_bytes(b"")
    found = bind_files(["interface:eth0?promiscuous", "./interface:eth0", "interface:eth1"], follow=True)
    assert [(each.link, is_interface(each.path), each.follow) for each in found] == [
        ("eth0", True, False),
        ("interface:eth0", False, True),
        ("eth1", True, False),
    ]


def test_two_streams_may_read_one_interface_and_one_stream_may_not_read_it_twice() -> None:
    check_streams([], bind_streams({"A": ["interface:eth0"], "B": ["interface:eth0"]}))
    with pytest.raises(InputError, match="interface:eth0 is bound twice to the stream A"):
        check_streams([], bind_streams({"A": ["interface:eth0", "interface:eth0"]}))


def test_engines_that_read_a_file_twice_refuse_it_and_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got a live interface, expected a file: Spark .*tcpdump -i eth0 -w FILE"):
        open_finite("interface:eth0?promiscuous", "Spark")
    status, _, err = run("query", "--on", "local", "interface:eth0", "SELECT count(*) FROM p", cwd=tmp_path)
    assert status == 2
    assert "reads complete files: interface:eth0 needs the inline engine" in err


def test_wiretide_run_refuses_a_link_that_is_an_interface(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        '[links]\nM = "interface:eth0"\n[queries.q]\nsql = "SELECT count(*) FROM M [RANGE 1 minute]"\n'
    )
    status, _, err = run("run", "p.toml", "--until-done", cwd=tmp_path)
    assert status == 1
    assert "interface:eth0: got a live interface" in err


def test_other_systems_are_told_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_socket.sys, "platform", "darwin")
    with pytest.raises(
        InputError, match=r"on Linux only, this is darwin; elsewhere: tcpdump -i en0 -U -w - \| wiretide"
    ):
        open_capture("interface:en0")


def test_what_was_lost_is_said_after_the_run() -> None:
    samples = Samples()
    samples.add(RECORDS_READ, 10, "eth0")
    reading = Reading("interface:eth0", 10, {"interface_gone": 1}, dropped=1234, unreadable=1, down=2)
    advice = "Use a larger ring, such as ?ring=256MiB, or fewer bytes of each packet, such as ?snaplen=128"
    assert list(run_warnings(samples, [reading])) == [
        "interface:eth0: interface gone, after 10 whole records",
        f"interface:eth0: 1,234 packets dropped by the system, because the ring was full. {advice}",
        "interface:eth0: 1 packet in the ring could not be read",
        "interface:eth0: the interface was down 2 times",
    ]
    assert {metric.kind for metric in (INTERFACE_DROPPED, INTERFACE_UNREADABLE, INTERFACE_DOWN)} == {"counter"}
