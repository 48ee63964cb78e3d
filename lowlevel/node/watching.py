"""The watchlists of a node. Expressions refer to open files; new versions of files are read between blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from capture.metrics import Samples
from lowlevel.expressions.tree import Literal
from lowlevel.metrics import WATCHLIST_ENTRIES, WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.watch.watched_file import CheckResult, WatchedFile, Watchlist, Watchlists

Plans = TypeVar("Plans")
Instance = TypeVar("Instance")


def files_in(value: object) -> Iterator[WatchedFile]:
    """Yield the watchlist files in a plan or a tuple of plans."""
    return instances_in(value, WatchedFile)


def instances_in(value: object, kind: type[Instance]) -> Iterator[Instance]:
    """Yield the objects of a type in a plan or a tuple of plans; a plan consists of dataclasses and tuples."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple):
        for member in value:
            yield from instances_in(member, kind)
    elif is_dataclass(value):
        for field in fields(value):
            yield from instances_in(getattr(value, field.name), kind)


def bind(plans: Plans, lists: Watchlists) -> Plans:
    """Replace each `WatchedFile` by the `Watchlist` of a registry, in a plan, an expression or a tuple of them.

    Parts without a watchlist are not copied. An object that occurs twice is replaced by one object.
    """
    return cast("Plans", _bound(plans, lists, {}))


def _bound(value: Any, lists: Watchlists, done: dict[int, Any]) -> Any:
    if isinstance(value, WatchedFile):
        return lists.open(value)
    if (not isinstance(value, tuple) and not is_dataclass(value)) or isinstance(value, Literal):
        return value
    if id(value) not in done:
        done[id(value)] = _with_bound_members(value, lists, done)
    return done[id(value)]


def _with_bound_members(value: Any, lists: Watchlists, done: dict[int, Any]) -> Any:
    if isinstance(value, tuple):
        members = tuple(_bound(member, lists, done) for member in value)
        return value if all(new is old for new, old in zip(members, value, strict=True)) else members
    changed = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = _bound(old, lists, done)
        if new is not old:
            changed[field.name] = new
    return replace(value, **changed) if changed else value


class NodeWatchlists:
    """The watchlists of a node. Only a node of a live input reads a file again after a change."""

    def __init__(self, live: bool, lists: Watchlists, clock: Callable[[], float] = time.monotonic) -> None:
        """Use the registry `lists`; `clock` returns seconds.

        A `live` node needs its own registry, because versions change between its blocks.
        """
        self.live = live
        self.clock = clock
        self.lists = lists
        self.files: list[Watchlist] = []
        """The watchlists of the plans, in the order of their first use."""

    def bind(self, plans: Plans) -> Plans:
        """Read the files of plans; return plans that refer to them. Raises InputError if a file cannot be read."""
        self.files = self.lists.read(files_in(plans))
        return bind(plans, self.lists)

    def begin_block(self) -> None:
        """Read new versions of files if the input is live. The versions stay the same until the next call."""
        if self.live and self.files:
            now = self.clock()
            for file in self.files:
                file.refresh(now)

    def add_samples(self, samples: Samples, link: str) -> None:
        """Add the counters of this node. A file that is open in several forms counts once."""
        by_path: dict[str, list[Watchlist]] = {}
        for file in self.files:
            by_path.setdefault(file.path, []).append(file)
        for path, files in by_path.items():
            samples.set(WATCHLIST_ENTRIES, files[0].version.contents.entries, link, path)
            samples.add(WATCHLIST_RELOADS, max(file.checks[CheckResult.RELOADED] for file in files), link, path)
            samples.add(WATCHLIST_FAILED, max(file.checks[CheckResult.FAILED] for file in files), link, path)
