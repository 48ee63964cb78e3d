"""The watchlists of a node: expressions are bound to open files, whose versions change between blocks only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from capture.metrics import Samples
from lowlevel.expressions.tree import Literal
from lowlevel.metrics import WATCHLIST_ENTRIES, WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.watch.watched_file import Looked, WatchedFile, Watchlist, Watchlists

Plans = TypeVar("Plans")


def files_in(value: object) -> Iterator[WatchedFile]:
    """Yield the files that a plan or a tuple of plans names; a plan consists of dataclasses and tuples."""
    if isinstance(value, WatchedFile):
        yield value
    elif isinstance(value, tuple):
        for member in value:
            yield from files_in(member)
    elif is_dataclass(value):
        for field in fields(value):
            yield from files_in(getattr(value, field.name))


def bind(plans: Plans, lists: Watchlists) -> Plans:
    """Replace each `WatchedFile` in a plan, an expression or a tuple of them by the opened list of a registry.

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


class Watching:
    """The watchlists of a node. A live input reads changed files again; other inputs use one version."""

    def __init__(self, live: bool, lists: Watchlists, clock: Callable[[], float] = time.monotonic) -> None:
        """Use a registry; `clock` returns seconds.

        Only nodes that are not `live` may share a registry: blocks of several links do not end at the same time.
        """
        self.live = live
        self.clock = clock
        self.lists = lists
        self.files: list[Watchlist] = []
        """The lists of the plans, in their order."""

    def bind(self, plans: Plans) -> Plans:
        """Return plans that use the lists of this node. Raises InputError for a file that cannot be read."""
        self.files = self.lists.read(files_in(plans))
        return bind(plans, self.lists)

    def begin_block(self) -> None:
        """Load new versions if the input is live; no version changes before the next block."""
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
            samples.add(WATCHLIST_RELOADS, max(file.looks[Looked.RELOADED] for file in files), link, path)
            samples.add(WATCHLIST_FAILED, max(file.looks[Looked.FAILED] for file in files), link, path)
