"""`wiretide dashboards`: write dashboards for Grafana from a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capture.errors import MissingPackageError, WiretideError

DATA_SOURCE = "wiretide"
"""Default uid of the data source of Prometheus in Grafana."""


class DashboardsError(WiretideError):
    """Files of the output folder that would be lost. The user must choose another folder, or replace them."""


def dashboards(
    pipeline: Annotated[
        Path, typer.Argument(metavar="PIPELINE.toml", help="The file with the links, queries and metrics.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for the files.")],
    node: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The metrics of the node, if the pipeline has links with a spool.")
    ] = "127.0.0.1:9465",
    datasource: Annotated[
        str, typer.Option(metavar="UID", help="The uid of the Prometheus data source in Grafana.")
    ] = DATA_SOURCE,
    comparison: Annotated[
        bool, typer.Option("--compare", help="Also panels for the samples of `wiretide compare --openmetrics`.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
) -> None:
    """Write dashboards for Grafana from a pipeline file.

    The folder gets dashboards by topic (an overview, talkers, protocols, …, the health of the pipeline), the
    provisioning of Grafana, a configuration of Prometheus, and a compose file that starts both on this machine:

    wiretide dashboards pipeline.toml -o monitoring

    docker compose -f monitoring/compose.yaml up
    """
    from queries.pipeline.file import read_pipeline

    settings = read_pipeline(pipeline)
    try:
        from dashboards.grafana.pipeline_files import make_files
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("grafana_foundation_sdk"):
            raise
        raise MissingPackageError("grafana-foundation-sdk", "grafana", "wiretide dashboards") from None
    files = make_files(settings, pipeline.stem, node, datasource, has_comparison=comparison)
    changed = [name for name, text in files.items() if _differs(output / name, text)]
    if changed and not force:
        listed = ", ".join(str(output / name) for name in changed)
        raise DashboardsError(f"these files exist and differ: {listed}; expected --force, or another folder with -o")
    for name, text in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text, "utf-8")
        print(output / name)


def _differs(path: Path, text: str) -> bool:
    return path.exists() and path.read_text("utf-8", errors="replace") != text
