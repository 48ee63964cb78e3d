"""`wiretide units`: write systemd units for a pipeline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

from capture.errors import WiretideError
from dashboards.command_options import Argument, Option


class UnitsError(WiretideError):
    """The units cannot be written: the program is unknown, or existing files would be lost."""


def units(
    pipeline: Annotated[Path, Argument(metavar="PIPELINE.toml", help="The file with the links, queries and metrics.")],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="The folder for the units.")] = Path(
        "systemd"
    ),
    user: Annotated[str, Option(metavar="NAME", help="The user of the services.")] = "wiretide",
    program: Annotated[
        Path | None, Option(metavar="PATH", help="The program `wiretide`. Default: the running program.")
    ] = None,
    node: Annotated[
        str, Option(metavar="HOST:PORT", help="The metrics of the node, if the pipeline has links with a spool.")
    ] = "127.0.0.1:9465",
    force: Annotated[bool, Option("--force", help="Replace files that differ.")] = False,
) -> None:
    """Write systemd units for a pipeline and print the commands to install them.

    A pipeline with links that have a spool gets two services, the node and the run. Their rights are limited: they may
    write only to the folders of the pipeline, and only the node may open interfaces.

    wiretide units /etc/wiretide/office.toml -o systemd
    """
    from dashboards.deployment.files import write_files
    from dashboards.deployment.units import Service, make_units, writable_folders
    from queries.pipeline.file import read_pipeline

    settings = read_pipeline(pipeline)
    settings.plans()  # reports a wrong query now, instead of at the start of the service
    executable = program or _this_program()
    unit_files = make_units(settings, Service(executable.absolute(), pipeline.absolute(), user, node))
    write_files(unit_files, output, replace=force)
    folders = " ".join(f"'{folder}'" for folder in writable_folders(settings))
    names = " ".join(unit_files)
    print("next, as root:")
    print(f"  getent passwd {user} || useradd --system --create-home --home-dir /var/lib/wiretide {user}")
    print(f"  install -d -o {user} -m 700 {folders}")
    print(f"  install -m 644 {output}/wiretide-*.service /etc/systemd/system/")
    print("  systemctl daemon-reload")
    print(f"  systemctl enable --now {names}")


def _this_program() -> Path:
    """Return the path of the running program. Raises UnitsError if it is unknown."""
    name = shutil.which(sys.argv[0]) or sys.argv[0]
    if Path(name).name != "wiretide":
        raise UnitsError(f"got {sys.argv[0]} as the running program, expected --program with the path of wiretide")
    return Path(name)
