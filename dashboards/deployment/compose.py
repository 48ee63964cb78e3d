"""The compose file: Prometheus and Grafana, and if an image is given also the pipeline itself.

All containers use the network of the host, and their servers listen on loopback only. The pipeline sees the folders of
its file, captures and spools at the same paths as on the host. Its containers run as the user who owns these files,
without capabilities; only the container that reads an interface has CAP_NET_RAW.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from capture.interface_path import is_interface
from dashboards.deployment.monitoring import GRAFANA_PORT, PROMETHEUS_PORT
from queries.pipeline.file import PipelineFile

COMPOSE_FILE = "compose.yaml"
PASSWD_FILE, CACHE_FILE = "container/passwd", "container/cache/README"
PROGRAMS = "/opt/wiretide/bin"
"""The folder of programs in the image, as in the Containerfile."""

_SERVERS = f"""\
  prometheus:
    image: prom/prometheus:v3.5.0
    network_mode: host
    restart: unless-stopped
    command:
      - --config.file=/etc/prometheus/prometheus.yml
      - --storage.tsdb.path=/prometheus
      - --web.listen-address=127.0.0.1:{PROMETHEUS_PORT}
    volumes:
      - ./prometheus:/etc/prometheus:ro
      - prometheus-data:/prometheus
  grafana:
    image: grafana/grafana:12.2.0
    network_mode: host
    restart: unless-stopped
    environment:
      GF_SERVER_HTTP_ADDR: 127.0.0.1
      GF_SERVER_HTTP_PORT: "{GRAFANA_PORT}"
      GF_AUTH_ANONYMOUS_ENABLED: "true"
      GF_AUTH_ANONYMOUS_ORG_ROLE: Viewer
    volumes:
      - ./grafana/provisioning:/etc/grafana/provisioning:ro
      - ./grafana/dashboards:/var/lib/wiretide/dashboards:ro
      - grafana-data:/var/lib/grafana
"""

_HEAD = f"""\
# Prometheus and Grafana on this machine: http://127.0.0.1:{GRAFANA_PORT}
# They use the network of the host, because Wiretide serves its metrics on loopback.
services:
"""

_VOLUMES = """\
volumes:
  prometheus-data:
  grafana-data:
"""


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers of a pipeline: the image, the pipeline file (absolute), and the user and group that own its files.

    `node`: HOST:PORT of the metrics of the node.
    """

    image: str
    file: Path
    user: int
    group: int
    node: str


def make_compose(pipeline: PipelineFile, containers: Containers | None) -> dict[str, str]:
    """Return the compose file and the files that it needs, by relative path. `containers`: None omits the pipeline."""
    if containers is None:
        return {COMPOSE_FILE: _HEAD + _SERVERS + _VOLUMES}
    services = list(_services(pipeline, containers))
    text = "".join(line for service in services for line in service)
    ids = f"{containers.user}:{containers.group}"
    return {
        COMPOSE_FILE: _HEAD + text + _SERVERS + _VOLUMES,
        # Hadoop, which Spark contains, requires a name for the user of the process.
        PASSWD_FILE: f"wiretide:x:{ids}:Wiretide:/var/lib/wiretide:/usr/sbin/nologin\n",
        CACHE_FILE: "Machine code of Wiretide for this processor. Everything here may be deleted.\n",
    }


def _services(pipeline: PipelineFile, containers: Containers) -> Iterator[Iterable[str]]:
    pipeline.require_local_folder("compose files")
    folders = _folders_of(pipeline, containers.file)
    if pipeline.spooled:
        interfaces = any(is_interface(link.capture) for link in pipeline.spooled.values())
        command = ["capture", str(containers.file), "--metrics", containers.node]
        yield _service("node", containers, command, folders, containers.node, raw_sockets=interfaces)
    address = f"{pipeline.host}:{pipeline.port}"
    yield _service("run", containers, ["run", str(containers.file)], folders, address, raw_sockets=False)


def _service(
    name: str,
    containers: Containers,
    command: Sequence[str],
    folders: Mapping[Path, str],
    address: str,
    *,
    raw_sockets: bool,
) -> Iterator[str]:
    """Yield the lines of a service. With `raw_sockets` it may open network interfaces."""
    program = [f"{PROGRAMS}/python-capture", "-m", "wiretide"] if raw_sockets else [f"{PROGRAMS}/wiretide"]
    look = f"import urllib.request as r; r.urlopen('http://{address}/metrics')"
    yield f"  wiretide-{name}:\n"
    yield f"    image: {json.dumps(containers.image)}\n"
    yield f'    user: "{containers.user}:{containers.group}"\n'
    yield "    network_mode: host\n"
    yield "    restart: unless-stopped\n"
    yield "    stop_grace_period: 2m\n"
    yield "    read_only: true\n"
    # Java extracts libraries into /tmp and executes them.
    yield '    tmpfs: ["/tmp:exec,mode=1777", "/var/lib/wiretide:mode=1777"]\n'
    yield "    cap_drop: [ALL]\n"
    if raw_sockets:
        # The program has a file capability, which no-new-privileges would remove.
        yield "    cap_add: [NET_RAW]\n"
    else:
        yield '    security_opt: ["no-new-privileges:true"]\n'
    yield f"    entrypoint: {json.dumps(program)}\n"
    yield f"    command: {json.dumps(command)}\n"
    yield f"    working_dir: {json.dumps(str(containers.file.parent))}\n"
    yield "    environment:\n"
    yield "      HOME: /var/lib/wiretide\n"
    yield "      XDG_CACHE_HOME: /var/cache/wiretide\n"
    yield "    healthcheck:\n"
    yield f"      test: {json.dumps(['CMD', f'{PROGRAMS}/python', '-c', look])}\n"
    yield "      start_period: 2m\n"
    yield "    volumes:\n"
    for folder, mode in folders.items():
        yield f"      - {json.dumps(f'{folder}:{folder}:{mode}')}\n"
    yield f"      - ./{Path(CACHE_FILE).parent}:/var/cache/wiretide:rw\n"
    yield f"      - ./{PASSWD_FILE}:/etc/passwd:ro\n"


def _folders_of(pipeline: PipelineFile, file: Path) -> dict[Path, str]:
    """Return the folders that the pipeline needs, with the mode of the mount.

    Folders inside of other folders are omitted.
    """
    modes: dict[Path, str] = {file.parent: "ro"}
    files = pipeline.read_paths
    files += [link.capture for link in pipeline.spooled.values() if not is_interface(link.capture)]
    for path in files:
        modes.setdefault(_existing_folder(Path(path)), "ro")
    for folder in (pipeline.folder.parent, *(link.spool.parent for link in pipeline.spooled.values())):
        modes[folder] = "rw"
    return {
        folder: mode
        for folder, mode in sorted(modes.items())
        if not any(other in folder.parents and (modes[other] == mode or mode == "ro") for other in modes)
    }


def _existing_folder(path: Path) -> Path:
    """Return a folder that contains a file, or all files of a glob."""
    is_glob = any(sign in str(path) for sign in "*?[")
    while any(sign in str(path) for sign in "*?["):
        path = path.parent
    return path if is_glob or path.is_dir() else path.parent
