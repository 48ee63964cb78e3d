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
from capture.files.rotation import TEMPLATES
from capture.interface_path import interface_name, is_interface
from highlevel.inline.engine import Input, check_one_input
from highlevel.plan.plan import Plan, leaves_of
from lowlevel.kinds import KINDS


def bind_files(paths: Iterable[str], follow: bool = False) -> list[Input]:
    """Return one link for each file. Every name in FROM means the union of all files; `link_names` names the links.

    With `follow` files may grow, and a folder is one link of all its files, including files that are added later.
    """
    files = [file for path in paths for file in expand(path, follow)]
    return [_input(link, file, None, follow) for link, file in zip(link_names(files), files, strict=True)]


def bind_streams(streams: Mapping[str, Iterable[str]], follow: bool = False) -> list[Input]:
    """Bind each name to its files, which together are one link. `follow`: see `bind_files`."""
    kinds = bound_kinds(streams)
    return [
        replace(_input(name, file, name, follow), bound_kinds=kinds)
        for name, paths in streams.items()
        for path in paths
        for file in expand(path, follow)
    ]


def bound_kinds(names: Iterable[str]) -> frozenset[str]:
    """Return the kinds of rows that are also names of links.

    >>> sorted(bound_kinds(["Packets", "Main1", "flows"]))
    ['flows', 'packets']
    """
    return frozenset(KINDS) & {name.lower() for name in names}


def _input(link: str, path: Path, stream: str | None, follow: bool) -> Input:
    return Input(link, path, stream, follow and not can_be_read_once(path))


def can_be_read_once(path: Path) -> bool:
    """Whether the path is standard input, a named pipe or a live interface, which cannot be read again."""
    return str(path) == STANDARD_INPUT or is_interface(path) or path.is_fifo()


def is_live(source: Input) -> bool:
    """Whether the input may grow: it is followed, or it is standard input, a named pipe or a live interface."""
    return source.follow or can_be_read_once(source.path)


def never_ends(source: Input) -> bool:
    """Whether only the user ends the input: it is followed, or it is a live interface."""
    return source.follow or is_interface(source.path)


def link_names(files: Sequence[Path]) -> list[str]:
    """Return the names of files without the suffixes of captures and of compression.

    Standard input is `stdin`, and a live interface has its own name. Equal names keep their suffixes, and the
    folders that make them different.

    >>> link_names([Path("/x/mon/a.pcap"), Path("/x/tue/a.pcap"), Path("/x/tue/b.pcap.gz"), Path("/x/tue/b.cap")])
    ['mon/a.pcap', 'tue/a.pcap', 'b.pcap.gz', 'b.cap']
    """
    places = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100  # resolve() would follow symbolic links
    names = [_plain_name(file, place) for file, place in zip(files, places, strict=True)]
    for depth in range(1, max((len(place.parts) for place in places), default=0)):
        uses = Counter(names)
        if len(uses) == len(names):
            break
        names = [
            "/".join(place.parts[1:][-depth:]) if uses[name] > 1 else name
            for name, place in zip(names, places, strict=True)
        ]
    return names


def _plain_name(file: Path, place: Path) -> str:
    if str(file) == STANDARD_INPUT:
        return "stdin"
    if is_interface(file):
        return interface_name(file)
    if place.is_dir():
        return place.name or place.anchor
    bare = Path(file.stem) if file.suffix.lower() in SUFFIXES else file
    return bare.stem


def expand(path: str, follow: bool = False) -> list[Path]:
    """Return the file of a path, the files of a folder, or the matches of a glob, sorted by name.

    `-` is standard input and `interface:NAME` a live interface; `./-` is a file. Hidden files and stored templates are
    left out. A path that exists is not read as a glob. With `follow` a folder, or a glob in one folder, is returned as
    it is, because its files may be added later. Raises InputError if there is no file.
    """
    if not path:
        raise InputError("got an empty path, expected a capture, a folder or a glob")
    place = Path(path)
    if is_interface(path):
        return [place]
    if is_interface(place) or (str(place) == STANDARD_INPUT and path != STANDARD_INPUT):
        place = place.absolute()
    if place.is_dir() and not follow:
        seen = (file for file in place.iterdir() if not file.name.startswith(".") and file.name != TEMPLATES)
        files = sorted(file for file in seen if file.is_file())
        if not files:
            deeper = any(file.is_file() for file in place.glob("*/**/*"))
            hint = f"; its folders contain files: use '{str(place).rstrip('/')}/**'" if deeper else ""
            raise InputError(f"{path}: the folder contains no file, expected captures{hint}")
        return files
    if place.exists() or not glob.has_magic(path):
        return [place]
    base, pattern = _split(place)
    if follow and base == place.parent and base.is_dir():
        return [place]
    # Path.glob would find hidden files too.
    matches = {base / match for match in glob.glob(pattern, root_dir=base, recursive=True)}  # noqa: PTH207
    files = sorted(match for match in matches if match.is_file() and match.name != TEMPLATES)
    if not files:
        raise InputError(f"{path}: no file matches")
    return files


def _split(place: Path) -> tuple[Path, str]:
    """Split a path into its existing folders and the pattern after them."""
    base = Path(place.anchor)
    rest = list(place.parts[1:] if place.anchor else place.parts)
    while len(rest) > 1 and (base / rest[0]).is_dir():
        base /= rest.pop(0)
    return base, str(Path(*rest))


def check_streams(plans: Iterable[Plan], inputs: Iterable[Input]) -> None:
    """Raise InputError for inputs that the queries cannot read.

    Examples are a name in FROM without a file, a file that is bound twice, standard input from a terminal, and two
    readers of a pipe. A query that depends on the order of arrival can read only one input.
    """
    inputs, plans = list(inputs), list(plans)
    _check_pipes(inputs)
    _check_folders(inputs)
    _check_once(inputs)
    streams = [each.stream for each in inputs if each.stream is not None]
    if len(streams) == len(inputs):
        check_names(plans, streams)
    check_one_input(leaves_of(plans), inputs)


def check_names(plans: Iterable[Plan], names: Iterable[str]) -> None:
    """Raise InputError if a name in FROM is not one of `names`: it would never have rows."""
    known = sorted(set(names))
    bound = {name.lower() for name in known}
    for leaf in (leaf for plan in plans for leaf in plan.leaves):
        for stream in () if leaf.reads_all_links and bound else leaf.streams:
            if stream.lower() not in bound:
                raise InputError(
                    f"query {leaf.name}: no file for the stream {stream}; bound are: {', '.join(known) or 'none'}"
                )


def _check_folders(inputs: Sequence[Input]) -> None:
    """Raise InputError for a file that a followed folder or glob of the same name in FROM also contains."""
    for many in (each for each in inputs if each.follow and not each.path.is_file()):
        folder, names = (many.path, "*") if many.path.is_dir() else (many.path.parent, many.path.name)
        for each in inputs:
            same = None in (each.stream, many.stream) or str(each.stream).lower() == str(many.stream).lower()
            here = each.path.is_file() and os.path.realpath(each.path.parent) == os.path.realpath(folder)
            if same and here and fnmatchcase(each.path.name, names):
                raise InputError(f"{each.path} is one of {many.path}, which is followed; expected only one of them")


def _check_pipes(inputs: Sequence[Input]) -> None:
    """Raise InputError for two readers of a pipe, and for standard input from a terminal."""
    for path, uses in Counter(each.path for each in inputs if can_be_read_once(each.path)).items():
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
    for each in inputs:
        # Path.resolve would raise for a symbolic link to itself; the error of open() is better.
        seen = readers.setdefault(os.path.realpath(each.path), {})
        stream = None if each.stream is None else each.stream.lower()
        other = seen.get(stream) or seen.get(None) or (next(iter(seen.values()), None) if stream is None else None)
        if other is not None:
            named = str(each.path) if each.path == other.path else f"{other.path} and {each.path} are one file, which"
            name = each.stream or other.stream
            to = f"to the stream {name}" if name else "to every name in FROM"
            raise InputError(f"{named} is bound twice {to}; expected once: its packets would be counted twice")
        seen[stream] = each
