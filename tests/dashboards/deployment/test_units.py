"""Units of systemd: `systemd-analyze` accepts and rates them, and Wiretide works under their limits.

There is no systemd that runs in these tests. So the tests compare the system calls of a node and of a run with the
filter of the units, and start a node with the only capability that its unit has.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import wiretide
from dashboards.deployment.units import HOMES, Service, make_units
from queries.pipeline.file import parse_pipeline
from tests.harness.capture_process import Running
from tests.harness.command_line import environment, run

QUERY = '[queries.q]\nsql = "SELECT count(*) AS n FROM packets [RANGE 1 minute]"\n'
FILES = f'folder = "/var/lib/wiretide/office"\n[links]\na = "/srv/a.pcap"\n{QUERY}'
LIVE = (
    'folder = "/var/lib/wiretide/office"\n[links.uplink]\ncapture = "interface:eth0"\n'
    f'spool = "/var/spool/wiretide/uplink"\n{QUERY}'
)
SERVICE = Service(Path("/usr/bin/env"), Path("/etc/wire tide/office.toml"), "wiretide", "127.0.0.1:9465")
EXPOSURE = 25
"""Largest exposure of a unit, as systemd computes it: from 0 to 100. Without any limit a service has 96."""


def units(text: str, service: Service = SERVICE) -> dict[str, str]:
    return make_units(parse_pipeline(text, Path("/etc/wire tide")), service)


def options(unit: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit)
    return dict(parser["Service"])


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def analyze(*words: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run([tool("systemd-analyze"), *words], cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("text", [FILES, LIVE], ids=["files", "live"])
def test_systemd_accepts_the_units_and_finds_them_confined(text: str, tmp_path: Path) -> None:
    made = units(text)
    for name, unit in made.items():
        (tmp_path / name).write_text(unit)
    assert analyze("verify", *made, cwd=tmp_path) == (0, "")
    for name in made:
        words = ("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", name)
        status, output = analyze(*words, cwd=tmp_path)
        assert status == 0, output.splitlines()[-1]


def test_systemd_sees_a_wrong_unit(tmp_path: Path) -> None:
    (name, unit), *_ = units(FILES).items()
    (tmp_path / name).write_text(unit.replace("ProtectSystem=strict", "ProtectSystem=maybe"))
    assert "Failed to parse protect system value" in analyze("verify", name, cwd=tmp_path)[1]
    (tmp_path / name).write_text(unit.replace("NoNewPrivileges=yes\n", "").replace("SystemCallFilter", "#"))
    assert analyze("security", "--offline=true", f"--threshold={EXPOSURE}", name, cwd=tmp_path)[0] != 0


def test_a_pipeline_has_a_run_and_with_spools_a_node() -> None:
    assert list(units(FILES)) == ["wiretide-office-run.service"]
    made = units(LIVE)
    assert list(made) == ["wiretide-office-node.service", "wiretide-office-run.service"]
    node, running = (options(unit) for unit in made.values())
    assert node["ExecStart"] == '/usr/bin/env capture "/etc/wire tide/office.toml" --metrics 127.0.0.1:9465'
    assert running["ExecStart"] == '/usr/bin/env run "/etc/wire tide/office.toml"'
    assert (node["AmbientCapabilities"], running["AmbientCapabilities"]) == ("CAP_NET_RAW", "")
    assert (node["CapabilityBoundingSet"], running["CapabilityBoundingSet"]) == ("CAP_NET_RAW", "")
    assert "AF_PACKET" in node["RestrictAddressFamilies"]
    assert "AF_PACKET" not in running["RestrictAddressFamilies"]
    assert node["ReadWritePaths"] == "/var/spool/wiretide/uplink"
    assert running["ReadWritePaths"] == "/var/lib/wiretide/office /var/spool/wiretide/uplink"
    assert node["ProtectHome"] == running["ProtectHome"] == "yes"
    piped = options(units(LIVE.replace("interface:eth0", "/run/wire.pipe"))["wiretide-office-node.service"])
    assert (piped["AmbientCapabilities"], "AF_PACKET" in piped["RestrictAddressFamilies"]) == ("", False)


def test_files_below_a_home_are_visible_and_only_folders_of_the_pipeline_are_writable() -> None:
    home = f"{HOMES[0]}/eve"
    for text in (FILES.replace("/srv", home), FILES.replace("/var/lib/wiretide", f"{home}/50%")):
        service = options(units(text)["wiretide-office-run.service"])
        assert (service["ProtectHome"], service["ProtectSystem"]) == ("read-only", "strict")
    assert service["ReadWritePaths"] == f"{home}/50%%/office"


def test_the_command_writes_units_and_prints_how_to_install_them(tmp_path: Path) -> None:
    (tmp_path / "office.toml").write_text(LIVE)
    words = ("units", "office.toml", "--program", "/opt/wiretide/bin/wiretide", "--user", "net")
    status, out, err = run(*words, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "systemd/wiretide-office-node.service",
        "systemd/wiretide-office-run.service",
        "next, as root:",
        "  getent passwd net || useradd --system --create-home --home-dir /var/lib/wiretide net",
        "  install -d -o net -m 700 '/var/lib/wiretide/office' '/var/spool/wiretide/uplink'",
        "  install -m 644 systemd/wiretide-*.service /etc/systemd/system/",
        "  systemctl daemon-reload",
        "  systemctl enable --now wiretide-office-node.service wiretide-office-run.service",
    ]
    unit = (tmp_path / "systemd" / "wiretide-office-run.service").read_text()
    assert f"ExecStart=/opt/wiretide/bin/wiretide run {tmp_path}/office.toml\n" in unit
    (tmp_path / "systemd" / "wiretide-office-run.service").write_text("mine")
    status, out, err = run(*words, cwd=tmp_path)
    assert (status, out) == (1, "")
    assert "these files exist and differ: systemd/wiretide-office-run.service" in err
    assert run(*words, "--force", cwd=tmp_path)[0] == 0


def test_a_program_of_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(FILES)
    status, _, err = run("units", "p.toml", cwd=tmp_path)
    assert status == 1
    assert "expected --program with the path of wiretide" in err


def system_calls(log: Path) -> set[str]:
    """Return the names in the table of `strace -c`."""
    return set(re.findall(r"^ *[\d.]+ .* ([a-z_0-9]+)$", log.read_text(), re.MULTILINE)) - {"total"}


def allowed_calls(tmp_path: Path) -> set[str]:
    """Return the system calls of the filter of the units, with those of the groups in it."""
    _, text = analyze("syscall-filter", "--no-pager", cwd=tmp_path)
    groups: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("@"):
            groups[line.strip()] = members = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            members.append(line.strip())

    def expand(name: str) -> set[str]:
        return set().union(*(expand(each) if each.startswith("@") else {each} for each in groups[name]))

    (name,) = {options(unit)["SystemCallFilter"] for unit in units(LIVE).values()}
    return expand(name)


@pytest.mark.spark
@pytest.mark.slow("a run on Spark under strace")
def test_a_run_needs_only_system_calls_of_the_filter(tmp_path: Path) -> None:
    strace, log = tool("strace"), tmp_path / "strace.log"
    assert run("generate", "a.pcap", "--packets", "20000", cwd=tmp_path)[0] == 0
    (tmp_path / "p.toml").write_text(f'[links]\na = "a.pcap"\n[metrics]\nport = 0\n{QUERY}')
    command = [strace, "-f", "-qq", "-c", "-o", log, sys.executable, wiretide.__file__, "run", "p.toml", "--until-done"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    used = system_calls(log)
    assert len(used) > 50
    assert used - allowed_calls(tmp_path) == set()


def test_a_node_needs_only_its_capability_and_system_calls_of_the_filter(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can limit the capabilities of a process")
    strace, setpriv, log = tool("strace"), tool("setpriv"), tmp_path / "strace.log"
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "p.toml").write_text(f'[links.lo]\ncapture = "interface:lo"\nspool = "spool/lo"\n{QUERY}')
    command = [
        *(strace, "-f", "-qq", "-c", "-I", "2", "-o", log),
        *(setpriv, "--bounding-set=-all,+net_raw", "--inh-caps=-all,+net_raw", "--no-new-privs"),
        *(sys.executable, wiretide.__file__, "capture", "p.toml", "--metrics", "127.0.0.1:0"),
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        node = Running(process)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        status = Path(f"/proc/{child}/status").read_text()
        assert re.search(r"^CapEff:\t0*2000$", status, re.MULTILINE), status
        node.until(
            lambda: bool(re.search(r"wiretide_records_read_total\{[^}]*\} [1-9]", node.metrics())), "packets read"
        )
        os.kill(int(child), signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 0, err
    used = system_calls(log)
    assert len(used) > 30
    assert used - allowed_calls(tmp_path) == set()
