"""A PostgreSQL server of the system on a free port of 127.0.0.1, for one test session."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "postgres"
"""The user of the Debian package: the server refuses to run as root."""


def find_programs() -> Path:
    """Return the folder of the newest server; skip the test if there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    if not folders:
        pytest.skip("no PostgreSQL server (Debian package postgresql)")
    return folders[-1]


@contextmanager
def run_postgresql() -> Iterator[str]:
    """Start a server with an empty database, yield its URL, and end the server."""
    programs, is_root = find_programs(), os.geteuid() == 0
    owner: str | None = None
    if is_root:
        try:
            owner = pwd.getpwnam(USER).pw_name
        except KeyError:
            pytest.skip(f"no user {USER}, and the server does not run as root")
    folder = Path(tempfile.mkdtemp(prefix="wiretide-postgresql-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        data = folder / "data"
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={USER}"]
        run = {"user": owner, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([programs / "initdb", *options, data], check=True, **run)
        settings = f"-p {port} -h 127.0.0.1 -k {folder} -F"
        control = [programs / "pg_ctl", "-D", data, "-w"]
        subprocess.run([*control, "-o", settings, "-l", folder / "log", "start"], check=True, **run)
        try:
            yield f"postgresql://{USER}@127.0.0.1:{port}/{USER}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, **run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
