"""`wiretide doctor`: check the machine and the installation."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

from capture.cores import count_cores
from capture.lazy_dataclasses import dataclass
from dashboards.command_options import Option

PACKAGES = {
    "pyspark": ("spark", "wiretide run, and queries on Spark"),
    "scapy": ("generate", "wiretide generate with scripts and protocols"),
    "dpkt": ("fallback", "rare link layers"),
    "bcrypt": ("auth", "users of the metrics server"),
    "yaml": ("sigma", "wiretide translate with rules of Sigma"),
    "matplotlib": ("plots", "reports and plots"),
    "grafana_foundation_sdk": ("grafana", "dashboards for Grafana"),
    "pandas": ("frames", "results as pandas data frames"),
    "polars": ("frames", "results as Polars data frames"),
    "duckdb": ("frames", "results as DuckDB relations"),
    "boto3": ("s3", "folders of runs in an object store"),
    "psycopg": ("postgresql", "sinks of PostgreSQL"),
    "deltalake": ("delta", "sinks of Delta Lake"),
    "confluent_kafka": ("kafka", "sinks and topics of Kafka"),
}
"""Optional packages: the extra of `pip install` that contains the package, and the features that need it."""


@dataclass(frozen=True)
class Check:
    """One check: its name, its result, and one line of details.

    `missing` means that some features do not work.
    """

    name: str
    result: Literal["ok", "missing"]
    detail: str


def run_checks() -> Iterator[Check]:
    """Yield the results of all checks, in the order of the output."""
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("cores", "ok", f"{count_cores()}")
    yield _check_kernels()
    yield _check_java()
    yield _check_interfaces()
    for package, (extra, purpose) in PACKAGES.items():
        installed = importlib.util.find_spec(package) is not None
        advice = f"needed for {purpose}: pip install 'wiretide[{extra}]'"
        yield Check(package, "ok" if installed else "missing", "installed" if installed else advice)


def _check_kernels() -> Check:
    from capture.kernel_cache import cache_folder
    from capture.kernel_compilation import declare_kernels
    from capture.native import kernels, missing_kernels

    declare_kernels()
    lacking = len(missing_kernels())
    if not lacking:
        return Check("kernels", "ok", f"{len(kernels)} compiled, in {cache_folder()}")
    advice = "wiretide doctor --compile compiles them now; otherwise the first query compiles those that it needs"
    return Check("kernels", "missing", f"{lacking} of {len(kernels)} are not compiled: {advice}")


def _check_java() -> Check:
    if importlib.util.find_spec("pyspark") is None:
        return Check("java", "missing", "not checked: only Spark needs it")
    from highlevel.spark.session.java import Machine, find_java_home, give_install_advice

    home = find_java_home()
    if home is None:
        return Check("java", "missing", f"Spark needs it. {give_install_advice(Machine.detect())}")
    from highlevel.spark.session.class_archive import find_archive

    advice = "" if find_archive(home) else "; wiretide doctor --compile makes the start of Spark faster"
    return Check("java", "ok", f"{home}{advice}")


def _check_interfaces() -> Check:
    from capture.errors import InputError
    from capture.live.packet_socket import open_socket

    try:
        open_socket("interface:any").close()
    except InputError as error:
        return Check("interfaces", "missing", str(error).removeprefix("interface:any: "))
    return Check("interfaces", "ok", "packet sockets can be opened")


def doctor(
    compiling: Annotated[
        bool,
        Option(
            "--compile",
            help="Compile the kernels that are not in the cache, on all cores, and prepare the start of Spark.",
        ),
    ] = False,
) -> None:
    """Check this machine: Java, kernels, permissions, optional packages.

    The exit status is 0 if queries can run. For each missing part, the output lists the features that need it.
    """
    from dashboards.output.console import compile_all_kernels
    from dashboards.wire_text import escape

    if compiling:
        compile_all_kernels()
        _prepare_spark()
    for check in run_checks():
        print(f"{check.name:<10}  {check.result:<7}  {escape(' '.join(check.detail.split()))}")


def _prepare_spark() -> None:
    """Create the archive of Spark's classes if Spark and Java are installed. Print a warning if this fails."""
    if importlib.util.find_spec("pyspark") is None:
        return
    from capture.errors import WiretideError
    from dashboards.class_archive import make_archive
    from highlevel.spark.session.class_archive import find_archive
    from highlevel.spark.session.java import find_java_home

    home = find_java_home()
    if home is None or find_archive(home) is not None:
        return
    print("wiretide: preparing the start of Spark …", file=sys.stderr, flush=True)
    try:
        make_archive(home)
    except (WiretideError, OSError) as error:
        print(f"wiretide: warning: Spark will start slowly: {error}", file=sys.stderr, flush=True)
