"""The inputs of a query: paths without names, or names in FROM that are bound to files, globs and folders."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from capture.errors import InputError
from capture.files.byte_source import STANDARD_INPUT
from capture.files.decompressed import SUFFIXES
from capture.files.rotation import TEMPLATES_FILE
from capture.interface_path import interface_name, is_interface
from highlevel.inline.engine import Input, check_one_input
from highlevel.inline.table_suffixes import SUFFIXES as TABLE_SUFFIXES
from highlevel.plan.plan import Plan, leaves_of
from lowlevel.kinds import KINDS


def bind_files(paths: Iterable[str], follow: bool = False) -> list[Input]:
    """Return one input and link for each file. Every name in FROM means the union of all files.

    `link_names` names the links. With `follow` files may grow, and a folder is one link of all its files, including
    files that are added later.
    """
    files = [file for path in paths for file in expand(path, follow)]
    return [_input(link, file, None, follow) for link, file in zip(link_names(files), files, strict=True)]


def bind_streams(paths_of: Mapping[str, Iterable[str]], follow: bool = False) -> list[Input]:
    """Bind each name in FROM to its files, which together are one link. `follow`: see `bind_files`."""
    kinds = bound_kinds(paths_of)
    return [
        replace(_input(_text(name), file, name, follow), bound_kinds=kinds)
        for name, paths in paths_of.items()
        for path in paths
        for file in expand(path, follow)
    ]


def bound_kinds(names: Iterable[str]) -> frozenset[str]:
    """Return the kinds of rows, in lower case, that are also names of links.

    >>> sorted(bound_kinds(["Packets", "Main1", "flows"]))
    ['flows', 'packets']
    """
    return frozenset(KINDS) & {name.lower() for name in names}


def _input(link: str, path: Path, stream: str | None, follow: bool) -> Input:
    """Return an input. Raises InputError for a file of a table, which needs a schema."""
    if path.name.lower().endswith(TABLE_SUFFIXES):
        raise InputError(
            f"{path}: got a table without a schema, expected a capture, or wiretide query --schema FILE "
            "(docs/guide/tables.md); in a pipeline file, table and schema under [links.NAME]"
        )
    return Input(link, path, stream, follow and not can_be_read_only_once(path))


def can_be_read_only_once(path: Path) -> bool:
    """Return whether the path is standard input, a named pipe or a live interface, which cannot be read again."""
    return str(path) == STANDARD_INPUT or is_interface(path) or path.is_fifo()


def is_live(source: Input) -> bool:
    """Return whether the input may grow: it is followed, or it is standard input, a named pipe or a live interface."""
    return source.follow or can_be_read_only_once(source.path)


def never_ends(source: Input) -> bool:
    """Return whether only the user ends the input: it is followed, or it is a live interface."""
    return source.follow or is_interface(source.path)


def link_names(files: Sequence[Path]) -> list[str]:
    r"""Return a different link name for each file: its name without the suffixes of captures and of compression.

    Standard input is `stdin`, and a live interface has its own name. Equal names keep their suffixes, and the
    folders that make them different. Bytes that are not UTF-8 are written as `\xe9`, because columns contain text.

    >>> link_names([Path("/x/mon/a.pcap"), Path("/x/tue/a.pcap"), Path("/x/tue/b.pcap.gz"), Path("/x/tue/b.cap")])
    ['mon/a.pcap', 'tue/a.pcap', 'b.pcap.gz', 'b.cap']
    """
    absolute_paths = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100  # resolve() would follow symbolic links
    names = [_text(_plain_name(file, path)) for file, path in zip(files, absolute_paths, strict=True)]
    for depth in range(1, max((len(absolute_path.parts) for absolute_path in absolute_paths), default=0)):
        use_counts = Counter(names)
        if len(use_counts) == len(names):
            break
        names = [
            _text("/".join(absolute_path.parts[1:][-depth:])) if use_counts[name] > 1 else name
            for name, absolute_path in zip(names, absolute_paths, strict=True)
        ]
    return names


def _text(name: str) -> str:
    """Return a name of a file as text: bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _plain_name(file: Path, absolute_path: Path) -> str:
    if str(file) == STANDARD_INPUT:
        return "stdin"
    if is_interface(file):
        return interface_name(file)
    if absolute_path.is_dir():
        return absolute_path.name or absolute_path.anchor
    bare = Path(file.stem) if file.suffix.lower() in SUFFIXES else file
    return bare.stem


def expand(path: str, follow: bool = False) -> list[Path]:
    """Return the files that a path means: one file, the files of a folder, or the matches of a glob, by name.

    `-` is standard input and `interface:NAME` a live interface; `./-` is a file. Hidden files and stored templates are
    left out. A path that exists is not read as a glob. With `follow` a folder, or a glob in one folder, is returned
    unchanged, because files may be added later. Raises InputError if there is no file.
    """
    if not path:
        raise InputError("got an empty path, expected a capture, a folder or a glob")
    location = Path(path)
    if is_interface(path):
        return [location]
    if is_interface(location) or (str(location) == STANDARD_INPUT and path != STANDARD_INPUT):
        location = location.absolute()
    if location.is_dir() and not follow:
        visible = (file for file in location.iterdir() if not file.name.startswith(".") and file.name != TEMPLATES_FILE)
        files = sorted(file for file in visible if file.is_file())
        if not files:
            has_deeper_files = any(file.is_file() for file in location.glob("*/**/*"))
            hint = f"; its folders contain files: use '{str(location).rstrip('/')}/**'" if has_deeper_files else ""
            raise InputError(f"{path}: the folder contains no file, expected captures{hint}")
        return files
    if location.exists() or not glob.has_magic(path):
        return [location]
    base, pattern = _split(location)
    if follow and base == location.parent and base.is_dir():
        return [location]
    # Path.glob would find hidden files too.
    matches = {base / match for match in glob.glob(pattern, root_dir=base, recursive=True)}  # noqa: PTH207
    files = sorted(match for match in matches if match.is_file() and match.name != TEMPLATES_FILE)
    if not files:
        raise InputError(f"{path}: no file matches")
    return files


def _split(path: Path) -> tuple[Path, str]:
    """Split a path into its existing folders and the pattern after them."""
    base = Path(path.anchor)
    remaining_parts = list(path.parts[1:] if path.anchor else path.parts)
    while len(remaining_parts) > 1 and (base / remaining_parts[0]).is_dir():
        base /= remaining_parts.pop(0)
    return base, str(Path(*remaining_parts))


def check_streams(plans: Iterable[Plan], inputs: Iterable[Input]) -> None:
    """Raise InputError for inputs that the queries cannot read.

    Examples are a name in FROM without a file, a file that is bound twice, standard input from a terminal, and two
    readers of a pipe. A query that depends on the order of arrival can read only one input.
    """
    inputs, plans = list(inputs), list(plans)
    _check_pipes(inputs)
    _check_folders(inputs)
    _check_once(inputs)
    streams = [source.stream for source in inputs if source.stream is not None]
    if len(streams) == len(inputs):
        check_names(plans, streams)
    check_one_input(leaves_of(plans), inputs)


def check_names(plans: Iterable[Plan], names: Iterable[str]) -> None:
    """Raise InputError if a name in FROM is not one of `names`: it would never have rows."""
    valid_names = sorted(set(names))
    valid_lower = {name.lower() for name in valid_names}
    for leaf in (leaf for plan in plans for leaf in plan.leaves):
        for stream in () if leaf.reads_all_links and valid_lower else leaf.names:
            if stream.lower() not in valid_lower:
                raise InputError(
                    f"query {leaf.name}: no file for the stream {stream}; bound are: {', '.join(valid_names) or 'none'}"
                )


def _check_folders(inputs: Sequence[Input]) -> None:
    """Raise InputError for a file that also belongs to a followed folder or glob with the same name in FROM."""
    for group in (source for source in inputs if source.follow and not source.path.is_file()):
        folder, pattern = (group.path, "*") if group.path.is_dir() else (group.path.parent, group.path.name)
        for file in inputs:
            same_name = None in (file.stream, group.stream) or str(file.stream).lower() == str(group.stream).lower()
            in_folder = file.path.is_file() and os.path.realpath(file.path.parent) == os.path.realpath(folder)
            if same_name and in_folder and fnmatchcase(file.path.name, pattern):
                raise InputError(f"{file.path} is one of {group.path}, which is followed; expected only one of them")


def _check_pipes(inputs: Sequence[Input]) -> None:
    """Raise InputError for two readers of a pipe, and for standard input from a terminal."""
    for path, uses in Counter(source.path for source in inputs if can_be_read_only_once(source.path)).items():
        if is_interface(path):  # every reader has its own ring
            continue
        if uses > 1:
            raise InputError(f"{path} is given {uses} times; expected once: the data of a pipe can be read only once")
        if str(path) == STANDARD_INPUT and os.isatty(0):
            raise InputError(
                '-: standard input is a terminal, expected a capture: tcpdump -U -w - | wiretide query - "SELECT …"'
            )


def _check_once(inputs: Sequence[Input]) -> None:
    """Raise InputError for a file that one name in FROM would read twice, also by a symbolic link."""
    readers: dict[str, dict[str | None, Input]] = {}
    for source in inputs:
        # Path.resolve raises an error for a symbolic link to itself; the later error of open() is clearer.
        earlier = readers.setdefault(os.path.realpath(source.path), {})
        stream = None if source.stream is None else source.stream.lower()
        earlier_source = earlier.get(stream) or earlier.get(None)
        earlier_source = earlier_source or (next(iter(earlier.values()), None) if stream is None else None)
        if earlier_source is not None:
            subject = (
                str(source.path)
                if source.path == earlier_source.path
                else f"{earlier_source.path} and {source.path} are one file, which"
            )
            name = source.stream or earlier_source.stream
            readers_text = f"to the stream {name}" if name else "to every name in FROM"
            raise InputError(
                f"{subject} is bound twice {readers_text}; expected once: its packets would be counted twice"
            )
        earlier[stream] = source
