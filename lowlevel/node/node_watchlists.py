"""The watchlists of a node. Its expressions refer to open files. New versions of the files are read between blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, cast

from capture.lazy_dataclasses import field_names
from capture.metrics import Samples
from lowlevel.expressions.tree import Literal
from lowlevel.metrics import WATCHLIST_ENTRIES, WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.watch.watched_file import CheckResult, NoWatchlists, WatchedFile, Watchlist, Watchlists

Plans = TypeVar("Plans")
Instance = TypeVar("Instance")


def find_watched_files(value: object) -> Iterator[WatchedFile]:
    """Yield the watchlist files in a plan or a tuple of plans."""
    return find_instances(value, WatchedFile)


def find_instances(value: object, kind: type[Instance]) -> Iterator[Instance]:
    """Yield the objects of a type in a plan or a tuple of plans. A plan consists of dataclasses and tuples.

    A part that occurs several times is searched once.
    """
    searched: set[int] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, kind):
            yield part
        elif isinstance(part, tuple):
            waiting.extend(reversed(part))
        elif (names := field_names(type(part))) and id(part) not in searched:
            searched.add(id(part))
            waiting.extend(getattr(part, name) for name in reversed(names))


def bind_watchlists(plans: Plans, lists: Watchlists) -> Plans:
    """Replace each `WatchedFile` in plans or expressions by the `Watchlist` of a registry.

    Parts without a watchlist are not copied. An object that occurs twice is replaced by one object.
    """
    return plans if isinstance(lists, NoWatchlists) else replace_watched_files(plans, lists.open)


def replace_watched_files(plans: Plans, change: Callable[[WatchedFile], object]) -> Plans:
    """Replace each `WatchedFile` in plans or expressions by the value of `change`, as `bind_watchlists` does."""
    return cast("Plans", _bind(plans, change, {}))


def _bind(value: Any, change: Callable[[WatchedFile], object], bound_values: dict[int, Any]) -> Any:
    if isinstance(value, WatchedFile):
        return change(value)
    if isinstance(value, Literal) or not (isinstance(value, tuple) or field_names(type(value))):
        return value
    if id(value) not in bound_values:
        bound_values[id(value)] = _bind_members(value, change, bound_values)
    return bound_values[id(value)]


def _bind_members(value: Any, change: Callable[[WatchedFile], object], bound_values: dict[int, Any]) -> Any:
    if isinstance(value, tuple):
        members = tuple(_bind(member, change, bound_values) for member in value)
        return (
            value
            if all(new_value is old_value for new_value, old_value in zip(members, value, strict=True))
            else members
        )
    changed_fields = {}
    for name in field_names(type(value)):
        old_value = getattr(value, name)
        new_value = _bind(old_value, change, bound_values)
        if new_value is not old_value:
            changed_fields[name] = new_value
    return replace(value, **changed_fields) if changed_fields else value


class NodeWatchlists:
    """The watchlists of a node. Only a node of a live input reads a file again after a change."""

    def __init__(self, is_live: bool, lists: Watchlists, clock: Callable[[], float] = time.monotonic) -> None:
        """Use the registry `lists`. `clock` returns seconds.

        If `is_live`, the node needs a separate registry, because versions change between its blocks.
        """
        self.is_live = is_live
        self.clock = clock
        self.lists = lists
        self.files: list[Watchlist] = []
        """The watchlists of the plans, in the order of their first use."""

    def bind(self, plans: Plans) -> Plans:
        """Read the files of plans; return plans that refer to them. Raises InputError if a file cannot be read."""
        self.files = [] if isinstance(self.lists, NoWatchlists) else self.lists.read(find_watched_files(plans))
        return bind_watchlists(plans, self.lists) if self.files else plans

    def begin_block(self) -> None:
        """Read new versions of files if the input is live. The versions stay the same until the next call."""
        if self.is_live and self.files:
            now = self.clock()
            for file in self.files:
                file.refresh(now)

    def add_samples(self, samples: Samples, link: str) -> None:
        """Add the counters of this node."""
        count_files(samples, self.files, link)


def count_files(samples: Samples, watchlists: Iterable[Watchlist], link: str = "") -> None:
    """Add the counters of open files. A file that is open several times is counted once.

    `link` is empty for files that only operators of the high level read.
    """
    files_by_path: dict[str, list[Watchlist]] = {}
    for file in watchlists:
        files_by_path.setdefault(file.path, []).append(file)
    for path, files in files_by_path.items():
        samples.set(WATCHLIST_ENTRIES, files[0].used_version.contents.line_count, link, path)
        samples.add(WATCHLIST_RELOADS, max(file.checks[CheckResult.RELOADED] for file in files), link, path)
        samples.add(WATCHLIST_FAILED, max(file.checks[CheckResult.FAILED] for file in files), link, path)
