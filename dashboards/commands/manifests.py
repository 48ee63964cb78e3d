"""`wiretide manifests`: write Kubernetes manifests for a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dashboards.command_options import Argument, Option


def manifests(
    pipeline: Annotated[Path, Argument(metavar="PIPELINE.toml", help="The file with the links, queries and metrics.")],
    image: Annotated[str, Option(metavar="IMAGE", help="The image of the Containerfile.")],
    volume: Annotated[
        list[str],
        Option(
            metavar="CLAIM:FOLDER",
            help="A persistent volume claim, and the folder at which all pods mount it. Repeatable. The volumes "
            "contain the pipeline file, its captures, spools and results.",
        ),
    ],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="The folder for the manifests.")] = Path(
        "kubernetes"
    ),
    namespace: Annotated[str, Option(metavar="NAME", help="The namespace of the pods.")] = "default",
    executors: Annotated[int, Option(metavar="N", min=1, help="The number of Spark executors.")] = 2,
    force: Annotated[bool, Option("--force", help="Replace files that differ.")] = False,
) -> None:
    """Write Kubernetes manifests for a pipeline.

    A pod runs the pipeline, and starts Spark executors as further pods if the pipeline uses them.

    \b
    wiretide manifests /data/office.toml --image registry.example/wiretide:1 \\
      --volume captures:/data
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.deployment.files import write_files
    from dashboards.deployment.kubernetes import Pods, make_manifests, parse_volumes
    from queries.pipeline.file import read_pipeline

    pods = Pods(pipeline.absolute(), image, namespace, parse_volumes(volume), executors)
    files = make_manifests(read_pipeline(pipeline), pods)
    write_files(files, output, replace=force)
    print("next:")
    for name in files:
        print(f"  kubectl apply -f {output / name}")
