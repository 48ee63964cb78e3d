"""The compose file is valid by the specification, and its pipeline sees its files and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from dashboards.deployment.compose import CACHE_FILE, PASSWD_FILE, Containers, make_compose
from queries.pipeline.file import parse_pipeline
from tests.harness.command_line import run

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "compose-spec.json").read_text())
QUERY = '[queries.q]\nsql = "SELECT count(*) AS n FROM packets [RANGE 1 minute]"\n'
FILES = f'folder = "/srv/results/office"\n[links]\na = "a.pcap"\nb = ["/data/captures/*.pcap", "/data/more"]\n{QUERY}'
LIVE = (
    'folder = "/srv/results/office"\n[links.uplink]\ncapture = "interface:eth0"\nspool = "/var/spool/wiretide/uplink"\n'
    f'[links.pipe]\ncapture = "/run/wire.pipe"\nspool = "/var/spool/wiretide/pipe"\n{QUERY}'
)
CONTAINERS = Containers("registry.example/wiretide:1", Path("/etc/wire tide/office.toml"), 1234, 56, "127.0.0.1:9465")


def compose(text: str, containers: Containers | None) -> tuple[dict[str, Any], dict[str, str]]:
    files = make_compose(parse_pipeline(text, Path("/etc/wire tide")), containers)
    return yaml.safe_load(files["compose.yaml"]), files


@pytest.mark.parametrize("text", [FILES, LIVE], ids=["files", "live"])
@pytest.mark.parametrize("containers", [None, CONTAINERS], ids=["servers", "all"])
def test_the_file_is_valid_by_the_specification(text: str, containers: Containers | None) -> None:
    content, _ = compose(text, containers)
    assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(content)] == []


def test_the_specification_refuses_unknown_keys() -> None:
    content, _ = compose(FILES, CONTAINERS)
    content["services"]["wiretide-run"]["volume"] = []
    (error,) = Draft7Validator(SCHEMA).iter_errors(content)
    assert "'volume'" in error.message


def test_services_are_those_of_the_pipeline() -> None:
    assert list(compose(FILES, None)[0]["services"]) == ["prometheus", "grafana"]
    assert list(compose(FILES, CONTAINERS)[0]["services"]) == ["wiretide-run", "prometheus", "grafana"]
    live = compose(LIVE, CONTAINERS)[0]["services"]
    assert list(live) == ["wiretide-node", "wiretide-run", "prometheus", "grafana"]
    assert live["wiretide-node"]["command"] == [
        *("capture", "/etc/wire tide/office.toml", "--metrics", "127.0.0.1:9465"),
    ]
    assert live["wiretide-run"]["command"] == ["run", "/etc/wire tide/office.toml"]


def test_only_a_container_that_reads_an_interface_has_a_capability() -> None:
    services = compose(LIVE, CONTAINERS)[0]["services"]
    for name in ("wiretide-node", "wiretide-run"):
        service = services[name]
        assert (service["cap_drop"], service["read_only"], service["user"]) == (["ALL"], True, "1234:56")
        is_node = name == "wiretide-node"
        assert service.get("cap_add") == (["NET_RAW"] if is_node else None)
        assert service.get("security_opt") == (None if is_node else ["no-new-privileges:true"])
        program = service["entrypoint"][0]
        assert program == f"/opt/wiretide/bin/{'python-capture' if is_node else 'wiretide'}"
    without = LIVE.replace("interface:eth0", "/run/other.pipe")
    assert "cap_add" not in compose(without, CONTAINERS)[0]["services"]["wiretide-node"]


def test_folders_are_mounted_at_their_own_paths_and_written_only_where_needed() -> None:
    def mounts(text: str) -> dict[str, str]:
        volumes = compose(text, CONTAINERS)[0]["services"]["wiretide-run"]["volumes"]
        split = [volume.rsplit(":", 2) for volume in volumes if volume.startswith("/")]
        assert all(source == target for source, target, _ in split)
        return {source: mode for source, _, mode in split}

    assert mounts(FILES) == {"/data": "ro", "/etc/wire tide": "ro", "/srv/results": "rw"}
    assert mounts(FILES.replace(', "/data/more"', "")).keys() == {"/data/captures", "/etc/wire tide", "/srv/results"}
    assert mounts(LIVE) == {
        "/etc/wire tide": "ro", "/run": "ro", "/srv/results": "rw", "/var/spool/wiretide": "rw",
    }  # fmt: skip


def test_the_user_of_the_container_has_a_name_and_a_cache() -> None:
    content, files = compose(FILES, CONTAINERS)
    assert files[PASSWD_FILE].startswith("wiretide:x:1234:56:")
    volumes = content["services"]["wiretide-run"]["volumes"]
    assert f"./{PASSWD_FILE}:/etc/passwd:ro" in volumes
    assert "./container/cache:/var/cache/wiretide:rw" in volumes
    assert CACHE_FILE in files


def test_the_command_writes_the_containers_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[links]\na = "a.pcap"\n' + QUERY)
    status, out, err = run("dashboards", "p.toml", "-o", "out", "--image", "wiretide", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert {"out/compose.yaml", "out/container/passwd", "out/container/cache/README"} <= {*out.splitlines()}
    service = yaml.safe_load((tmp_path / "out" / "compose.yaml").read_text())["services"]["wiretide-run"]
    assert service["command"] == ["run", str(tmp_path.resolve() / "p.toml")]
    assert f"{tmp_path.resolve()}:{tmp_path.resolve()}:rw" in service["volumes"]
