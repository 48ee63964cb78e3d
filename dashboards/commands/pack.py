"""`wiretide pack`: build an archive of this environment for the executors of a cluster."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Annotated

from capture.errors import MissingPackageError
from dashboards.command_options import Option


def pack(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="The archive: a name that ends with .tar.gz or .tgz.")
    ] = Path("wiretide.tar.gz"),
    package: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Add an installed package and its dependencies, for your functions. Repeatable."),
    ] = None,
) -> None:
    """Build an archive of this environment for a Spark cluster.

    The archive contains Python, Wiretide, the packages that it needs on Spark, and its compiled kernels. So the
    machines of the cluster need no Python and no packages: Spark sends the archive to each executor.

    \b
    wiretide pack -o wiretide.tar.gz
    wiretide query /data/trace.pcap @top-talkers \\
      --on spark://HOST:7077 --archive wiretide.tar.gz
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.deployment.archive import check_output, list_members, write_archive
    from dashboards.output.console import compile_all_kernels, format_bytes, progress_bar
    from dashboards.wire_text import escape

    check_output(output)
    if importlib.util.find_spec("pyspark") is None:
        raise MissingPackageError("pyspark", "spark", "wiretide pack")
    begin = time.monotonic()
    compile_all_kernels()
    members = list_members(package or [])
    print(f"wiretide: packing {len(members):,} files …", file=sys.stderr, flush=True)
    with progress_bar() as bar:
        size = write_archive(output, members, lambda done, total: None if bar is None else bar(done, total))
    unpacked = format_bytes(sum(member.size for member in members))
    seconds = time.monotonic() - begin
    print(escape(f"{output}: {format_bytes(size)}, {unpacked} unpacked, {len(members):,} files, in {seconds:.0f} s"))
    print(f"next: wiretide query INPUT SQL --on spark://HOST:7077 --archive {escape(str(output))}")
