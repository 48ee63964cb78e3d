"""The archive of `wiretide pack`: its files, and Python in a folder that it was not built for.

The test of a cluster (`tests/system/test_spark_cluster.py`) runs queries in it. Here a small archive is unpacked, which
has links to none of the folders of this machine.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from capture.kernel_compilation import declare_kernels
from dashboards.deployment.archive import (
    Member,
    PackError,
    check_output,
    find_distributions,
    list_members,
    write_archive,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def members() -> dict[str, Member]:
    declare_kernels()
    return {member.name: member for member in list_members(["hypothesis"])}


def test_the_archive_has_what_tasks_import_and_no_more(members: dict[str, Member]) -> None:
    packages = "lib/python{}.{}/site-packages".format(*sys.version_info)
    for name in (
        *("capture/native.py", "capture/flows/elements.csv", "lowlevel/plan.py", "highlevel/spark/tasks/host.py"),
        *("queries/gsql.py", "dashboards/commands/app.py", "wiretide.py", "pyspark/daemon.py", "numba/__init__.py"),
        *("pyarrow/__init__.py", "llvmlite/__init__.py", "pandas/__init__.py", "hypothesis/__init__.py"),
        *(
            "sortedcontainers/__init__.py",
            f"wiretide-{find_version()}.dist-info/METADATA",
        ),  # hypothesis needs the first
    ):
        assert f"{packages}/{name}" in members
    unwanted = ("pyspark/jars", "pytest", "mypy", "ruff", "playwright", "_duckdb", "numba/tests", "__editable__")
    assert [name for name in members if name.startswith(tuple(f"{packages}/{part}" for part in unwanted))] == []
    assert f"{packages}/pip/__init__.py" not in members
    assert len([name for name in members if name.startswith("share/wiretide/kernels/")]) > 30
    assert "lib/python{}.{}/json/__init__.py".format(*sys.version_info) in members


def find_version() -> str:
    return find_distributions()[0].version


def test_its_python_starts_in_any_folder(members: dict[str, Member], tmp_path: Path) -> None:
    """Everything except the large packages is unpacked; a path with a space needs quotes in the launcher."""
    large = ("/llvmlite/", "/pyarrow/", "/pandas/", "/numba/", "/scipy/", "/pyspark/")
    small = [member for name, member in members.items() if not any(part in name for part in large)]
    seen: list[tuple[int, int]] = []
    write_archive(tmp_path / "small.tar.gz", small, lambda done, total: seen.append((done, total)))
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] == sum(member.size for member in small)
    folder = tmp_path / "a folder"
    folder.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "small.tar.gz", "-C", folder], check=True)
    modes = {path.stat().st_mode & 0o22 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0}, "machine code is loaded only from files that others cannot write"
    program = "import sys, ctypes, ssl, numpy, wiretide; print(sys.prefix, wiretide.__file__, numpy.__file__)"

    def run(*command: str | Path) -> str:
        environment = {"PATH": os.defpath, "PYTHONPATH": "/nowhere", "HOME": str(tmp_path)}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    prefix, *files = run(folder / "bin" / "python", "-c", program).strip().replace(str(folder), "HERE").split()
    assert prefix == "HERE"
    assert all(file.startswith("HERE/lib/") for file in files)
    link = tmp_path / "python"
    link.symlink_to(folder / "bin" / "python")
    assert run(link, "-c", program) == run(folder / "bin" / "python", "-c", program)
    assert run(folder / "bin" / "wiretide", "--version") == f"wiretide {find_version()}\n"


def test_an_archive_that_is_interrupted_leaves_no_file(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path / "a.tgz", [Member("a", content=b"1"), Member("b", content=b"2")], interrupt)
    assert list(tmp_path.iterdir()) == []


def test_files_keep_their_content_and_rights(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    source.chmod(0o666)
    members = [Member("share/x", source), Member("bin/y", content=b"#!/bin/sh\n", is_program=True)]
    size = write_archive(tmp_path / "a.tgz", members, lambda *_: None)
    assert size == (tmp_path / "a.tgz").stat().st_size
    with tarfile.open(tmp_path / "a.tgz") as archive:
        assert [(entry.name, entry.mode, entry.uid) for entry in archive] == [
            ("share/x", 0o644, 0),
            ("bin/y", 0o755, 0),
        ]
        file = archive.extractfile("share/x")
        assert file is not None
        assert file.read() == b"abc"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a.zip", "expected a name that ends with .tar.gz or .tgz"),
        ("a#b.tgz", "Spark cannot read a path with # or a comma"),
        ("no/a.tgz", "there is no folder"),
        ("folder.tgz", "got a folder, expected the name of a file"),
    ],
)
def test_names_that_are_refused(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "folder.tgz").mkdir()
    with pytest.raises(PackError, match=problem):
        check_output(tmp_path / name)


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(PackError, match=r"package no-such-package: not installed here"):
        find_distributions(["no-such-package"])
