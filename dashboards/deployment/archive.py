"""The archive of `wiretide pack`: Python, the packages of the tasks, Wiretide and its compiled kernels, for executors.

    bin/python                                 a script that starts the interpreter from any folder
    bin/wiretide                               the command line, to try the archive by hand
    bin/python3.11, lib/libpython3.11.so       the interpreter
    lib/python3.11/                            its standard library
    lib/python3.11/site-packages/              the packages
    share/wiretide/kernels/                    machine code for the processor of this machine

Spark unpacks the archive into the working folder of each executor (`spark.archives`), so no file of the archive may
depend on a path. An environment of `venv` contains the path of its interpreter, which the executors do not have.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from isal import igzip

from capture.errors import WiretideError
from capture.kernel_cache import SHIPPED_FOLDER
from capture.lazy_dataclasses import dataclass
from capture.native import kernels
from capture.private_files import SHARED_FILE_MODE, open_replacement

PROJECT = ("capture", "lowlevel", "highlevel", "queries", "dashboards", "wiretide")
"""The import packages of Wiretide. An editable installation does not list their files."""

EXTRA = "spark"
"""The extra of Wiretide that executors need."""

SUFFIXES = (".tar.gz", ".tgz")
"""Suffixes of archives that Spark unpacks with gzip."""

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"

LIBRARY = PurePosixPath("lib", PYTHON)

PACKAGES = LIBRARY / "site-packages"

OMITTED_OF_PYTHON = {"site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip"}
"""Folders of the standard library that tasks do not need, in addition to `config-*`."""

OMITTED_OF_PACKAGES = {"tests", "include"}
"""Folders of packages that tasks do not need."""

OMITTED_OF_SPARK = {"jars", "bin", "sbin", "data", "examples", "licenses", "python"}
"""Folders of pyspark that tasks do not need: an executor has its own Spark."""

REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?[^;]*(?:;(.*))?")
"""A requirement of a distribution: its name, its extras and its condition."""

EXTRA_CONDITION = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")

LAUNCHER = """#!/bin/sh
# Starts the Python of this archive, wherever the archive is.
here=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd -P) || exit 127
export PYTHONHOME="$here" PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/%s"
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/bin/%s" %s"$@"
"""


class PackError(WiretideError):
    """The archive cannot be built: the system, the name of the file, or a package is wrong."""


@dataclass(frozen=True)
class Member:
    """A file of the archive: its name in the archive, and its path on this machine or its content."""

    name: str
    path: Path | None = None
    content: bytes = b""
    is_program: bool = False

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self.content) if self.path is None else self.path.stat().st_size


def check_output(output: Path) -> None:
    """Raise PackError if the system or the name of the archive is wrong."""
    if not sys.platform.startswith("linux"):
        raise PackError(f"wiretide pack: got the system {sys.platform}, expected Linux: executors run on Linux")
    if not output.name.endswith(SUFFIXES):
        raise PackError(f"--output {output}: expected a name that ends with {' or '.join(SUFFIXES)}")
    if "#" in str(output) or "," in str(output):
        raise PackError(f"--output {output}: Spark cannot read a path with # or a comma; take another one")
    if output.is_dir():
        raise PackError(f"--output {output}: got a folder, expected the name of a file")
    if not output.absolute().parent.is_dir():
        raise PackError(f"--output {output}: there is no folder {output.absolute().parent}; create it")


def list_members(packages: Sequence[str] = ()) -> list[Member]:
    """Return all files of the archive, each once. All kernels must be declared.

    `packages` are further installed packages, for functions of users. Raises PackError for a package that is not
    installed.
    """
    members: dict[str, Member] = {}
    sources = (
        _list_programs(),
        _list_standard_library(),
        *(_list_distribution(distribution) for distribution in find_distributions(packages)),
        *(_list_import_package(name) for name in PROJECT),
        _list_kernels(),
    )
    for source in sources:
        members |= {member.name: member for member in source}
    return list(members.values())


def write_archive(output: Path, members: Sequence[Member], progress: Callable[[int, int], None]) -> int:
    """Write the archive, and return its size in bytes. The file gets its name when it is complete.

    `progress` receives the number of bytes written, and the number of bytes of all files.
    """
    total = sum(member.size for member in members)
    completed = 0
    with open_replacement(output, SHARED_FILE_MODE) as (_, temporary):
        # The level has little effect: libraries of machine code are compressed to a third at every level.
        with (
            igzip.open(temporary, "wb", compresslevel=1) as stream,  # type: ignore[no-untyped-call]
            tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 20) as archive,
        ):
            for member in members:
                progress(completed, total)
                completed += _add(archive, member)
        progress(completed, total)
        return temporary.stat().st_size


def _add(archive: tarfile.TarFile, member: Member) -> int:
    entry = tarfile.TarInfo(member.name)
    # Not writable by others, for any umask of this machine: machine code is loaded only from such files.
    entry.mode = 0o755 if member.is_program else 0o644
    if member.path is None:
        entry.size = len(member.content)
        archive.addfile(entry, io.BytesIO(member.content))
        return entry.size
    with member.path.open("rb") as file:
        status = os.fstat(file.fileno())
        entry.size, entry.mtime = status.st_size, int(status.st_mtime)  # compiled modules name the time of their source
        archive.addfile(entry, file)
    return entry.size


def find_distributions(packages: Sequence[str] = ()) -> list[Distribution]:
    """Return the distributions of Wiretide, of `packages`, and of all packages that these need on Spark.

    Raises PackError for a package that is not installed.
    """
    distributions: dict[str, Distribution] = {}
    waiting = [("wiretide", EXTRA, True), *((name, "", True) for name in packages)]
    visited: set[tuple[str, str]] = set()
    while waiting:
        name, extra, is_required = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if (key, extra) in visited:
            continue
        visited.add((key, extra))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if is_required:
                raise PackError(f"package {name}: not installed here; install it, or check its name") from None
            continue  # its condition is false here, such as a version of Python or another system
        distributions[key] = distribution
        for text in distribution.requires or ():
            requirement = REQUIREMENT.match(text)
            condition = EXTRA_CONDITION.search((requirement and requirement[3]) or "")
            if requirement is not None and (condition is None or condition[1] == extra):
                extras = (requirement[2] or "").strip("[]").split(",")
                waiting += [(requirement[1], name_of_extra.strip(), False) for name_of_extra in extras]
    return list(distributions.values())


def _list_programs() -> Iterator[Member]:
    program = Path(os.path.realpath(sys.executable))
    for name, arguments in (("python", ""), ("wiretide", "-m wiretide ")):
        yield Member(f"bin/{name}", content=(LAUNCHER % (PACKAGES, PYTHON, arguments)).encode(), is_program=True)
    yield Member(f"bin/{PYTHON}", program, is_program=True)
    shared = sysconfig.get_config_var("INSTSONAME") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None
    if shared:
        library = next(
            (
                folder / shared
                for folder in (Path(str(sysconfig.get_config_var("LIBDIR"))), program.parent.parent / "lib")
                if (folder / shared).exists()
            ),
            None,
        )
        if library is None:
            raise PackError(f"wiretide pack: the library {shared} of {program} was not found; take another Python")
        yield Member(f"lib/{shared}", library)


def _list_standard_library() -> Iterator[Member]:
    root = Path(sysconfig.get_path("stdlib"))
    left_out = OMITTED_OF_PYTHON | {path.name for path in root.glob("config-*")}
    for path in _list_files(root, lambda parts: parts[0] not in left_out):
        yield Member(str(LIBRARY / path.relative_to(root)), path)


def _list_distribution(distribution: Distribution) -> Iterator[Member]:
    name = distribution.metadata["Name"].lower()
    for entry in distribution.files or ():
        parts = entry.parts
        is_of_wiretide = name == "wiretide" and ".dist-info" not in parts[0]
        if parts[0] in ("..", "/") or is_of_wiretide or entry.suffix in (".pth", ".a"):
            continue  # programs, which contain a path, and files that need `site`
        if OMITTED_OF_PACKAGES & set(parts[1:-1]) or entry.name in ("RECORD", "direct_url.json"):
            continue
        if parts[0] == "pyspark" and len(parts) > 2 and parts[1] in OMITTED_OF_SPARK:
            continue
        path = Path(str(entry.locate()))
        if path.is_file():
            yield Member(str(PACKAGES / PurePosixPath(*parts)), path)


def _list_import_package(name: str) -> Iterator[Member]:
    specification = importlib.util.find_spec(name)
    if specification is None or specification.origin is None:
        raise PackError(f"wiretide pack: the package {name} of Wiretide was not found; install Wiretide again")
    origin = Path(specification.origin)
    if not specification.submodule_search_locations:
        yield Member(str(PACKAGES / origin.name), origin)
        return
    for path in _list_files(origin.parent, lambda parts: "tests" not in parts):
        yield Member(str(PACKAGES / name / path.relative_to(origin.parent)), path)


def _list_kernels() -> Iterator[Member]:
    for kernel in kernels:
        path = kernel.stored_path()
        if path is None:
            raise PackError(f"wiretide pack: the kernel {kernel.name} was not stored; see wiretide doctor")
        yield Member(str(PurePosixPath(SHIPPED_FOLDER.as_posix(), path.name)), path)


def _list_files(root: Path, is_wanted: Callable[[tuple[str, ...]], bool]) -> Iterator[Path]:
    """Yield the files below a folder in a fixed order. Modules are compiled for one level of optimisation only."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if is_wanted(parts) and ".opt-" not in path.name and path.suffix != ".a" and path.is_file():
            yield path
