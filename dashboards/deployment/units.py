"""Units of systemd for a pipeline: the node that captures, and the run that computes. Their rights are limited.

    wiretide-NAME-node.service    wiretide capture PIPELINE.toml     CAP_NET_RAW if it reads interfaces
    wiretide-NAME-run.service     wiretide run PIPELINE.toml         no capabilities

A unit sees the file system read-only, except for the folders of results and spools. Memory that is writable and
executable is allowed, because the kernels of Wiretide and the JVM are compiled at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from capture.interface_path import is_interface
from queries.pipeline.file import PipelineFile

HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
"""Folders that ProtectHome hides."""

SOCKET_FAMILIES = "AF_UNIX AF_INET AF_INET6 AF_NETLINK"
"""Families of sockets. The C library lists addresses of this machine by netlink."""

_CONFINED = """\
NoNewPrivileges=yes
UMask=0077
ProtectSystem=strict
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""


@dataclass(frozen=True, slots=True)
class Service:
    """How the units start Wiretide: the program and the pipeline file (absolute), the user, and the node's metrics."""

    program: Path
    file: Path
    user: str
    node: str


def make_units(pipeline: PipelineFile, service: Service) -> dict[str, str]:
    """Return the text of each unit by the name of its file. Raises PipelineError for a folder in an object store."""
    pipeline.require_local_folder("systemd units")
    name = service.file.stem
    units = {}
    if pipeline.spooled:
        has_interface = any(is_interface(link.capture) for link in pipeline.spooled.values())
        units[f"wiretide-{name}-node.service"] = "".join(_node_unit(pipeline, service, name, has_interface))
    units[f"wiretide-{name}-run.service"] = "".join(_run_unit(pipeline, service, name))
    return units


def writable_folders(pipeline: PipelineFile) -> list[Path]:
    """Return the folders that Wiretide writes: results, and spools."""
    return sorted({pipeline.folder, *(link.spool for link in pipeline.spooled.values())})


def _node_unit(pipeline: PipelineFile, service: Service, name: str, has_interface: bool) -> Iterator[str]:
    yield from _unit(f"Wiretide node of {name}")
    yield from _service(service, f"capture {_quote_path(service.file)} --metrics {service.node}")
    yield f"AmbientCapabilities={'CAP_NET_RAW' if has_interface else ''}\n"
    yield f"CapabilityBoundingSet={'CAP_NET_RAW' if has_interface else ''}\n"
    yield f"RestrictAddressFamilies={SOCKET_FAMILIES}{' AF_PACKET' if has_interface else ''}\n"
    inputs = [Path(link.capture) for link in pipeline.spooled.values() if not is_interface(link.capture)]
    yield from _files(service, [link.spool for link in pipeline.spooled.values()], inputs)
    yield from _install()


def _run_unit(pipeline: PipelineFile, service: Service, name: str) -> Iterator[str]:
    yield from _unit(f"Wiretide run of {name}")
    yield from _service(service, f"run {_quote_path(service.file)}")
    yield "AmbientCapabilities=\n"
    yield "CapabilityBoundingSet=\n"
    yield f"RestrictAddressFamilies={SOCKET_FAMILIES}\n"
    inputs = [Path(path) for path in pipeline.read_paths]
    yield from _files(service, writable_folders(pipeline), inputs)
    yield from _install()


def _unit(description: str) -> Iterator[str]:
    yield "[Unit]\n"
    yield f"Description={description}\n"
    yield "Wants=network-online.target\n"
    yield "After=network-online.target\n"
    yield "StartLimitIntervalSec=10min\n"
    yield "StartLimitBurst=5\n"
    yield "\n"


def _service(service: Service, arguments: str) -> Iterator[str]:
    yield "[Service]\n"
    yield "Type=exec\n"
    yield f"User={service.user}\n"
    yield f"ExecStart={_quote_path(service.program)} {arguments}\n"
    yield f"WorkingDirectory={_escape_path(service.file.parent)}\n"
    yield "Restart=on-failure\n"
    yield "RestartSec=10s\n"
    # After SIGTERM all work is written.
    yield "TimeoutStopSec=2min\n"
    yield "SuccessExitStatus=143\n"
    yield "CacheDirectory=wiretide\n"
    yield "Environment=XDG_CACHE_HOME=/var/cache/wiretide\n"
    yield _CONFINED


def _files(service: Service, written: Iterable[Path], inputs: Iterable[Path]) -> Iterator[str]:
    used = [service.program, service.file, *written, *inputs]
    at_home = any(home in path.parents for path in used for home in HOMES)
    yield f"ProtectHome={'read-only' if at_home else 'yes'}\n"
    yield f"ReadWritePaths={' '.join(_quote_path(folder) for folder in written)}\n"


def _install() -> Iterator[str]:
    yield "\n"
    yield "[Install]\n"
    yield "WantedBy=multi-user.target\n"


def _escape_path(path: Path) -> str:
    """Return a path with `%` escaped, so that systemd replaces nothing in it."""
    return str(path).replace("%", "%%")


def _quote_path(path: Path) -> str:
    """Return a path as one word of a command line or a list.

    >>> _quote_path(Path("/opt/my files/50%"))
    '"/opt/my files/50%%"'
    """
    text = _escape_path(path).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"' if set(text) & set(" \t'\"\\;") else text
