"""`wiretide dashboards`: write dashboards for Grafana from a pipeline file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from capture.errors import MissingPackageError
from dashboards.command_options import Argument, Option

DATA_SOURCE = "wiretide"
"""The default uid of the Prometheus data source in Grafana."""


def dashboards(
    pipeline: Annotated[Path, Argument(metavar="PIPELINE.toml", help="The file with the links, queries and metrics.")],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="The folder for the files.")],
    node: Annotated[
        str, Option(metavar="HOST:PORT", help="The metrics of the node, if the pipeline has links with a spool.")
    ] = "127.0.0.1:9465",
    datasource: Annotated[
        str, Option(metavar="UID", help="The uid of the Prometheus data source in Grafana.")
    ] = DATA_SOURCE,
    comparison: Annotated[
        bool, Option("--compare", help="Add panels for the samples that `wiretide compare` writes.")
    ] = False,
    image: Annotated[
        str | None,
        Option(metavar="NAME", help="Start the pipeline in the compose file too, with this container image."),
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace files that differ.")] = False,
) -> None:
    """Write dashboards for Grafana from a pipeline file.

    Writes dashboards by topic (overview, talkers, protocols, …, health) into a folder. Also writes the provisioning of
    Grafana, a configuration of Prometheus, and a compose file that starts both servers on this machine:

    wiretide dashboards pipeline.toml -o monitoring

    docker compose -f monitoring/compose.yaml up
    """
    from dashboards.deployment.compose import Containers
    from dashboards.deployment.files import write_files
    from queries.pipeline.file import read_pipeline

    settings = read_pipeline(pipeline)
    try:
        from dashboards.grafana.pipeline_files import make_files
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("grafana_foundation_sdk"):
            raise
        raise MissingPackageError("grafana-foundation-sdk", "grafana", "wiretide dashboards") from None
    containers = Containers(image, pipeline.resolve(), os.getuid(), os.getgid(), node) if image is not None else None
    files = make_files(settings, pipeline.stem, node, datasource, comparison, containers)
    write_files(files, output, replace=force)
