"""The watchlists of a link's queries: one version of each in all of a block, and what became of changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

from capture.metrics import Samples
from lowlevel.expressions.tree import InWatchlist, LongestPrefix, parts_of
from lowlevel.metrics import WATCHLIST_ENTRIES, WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.plan import LowLevelPlan
from lowlevel.watch.watched_file import Looked, WatchedFile, hold, release


def watched_files(plans: Iterable[LowLevelPlan]) -> list[WatchedFile]:
    """Return every file that an expression of a plan names, each as often as it was opened."""
    trees = [tree for plan in plans for tree in plan.trees]
    found = [part.file for tree in trees for part in parts_of(tree) if isinstance(part, InWatchlist | LongestPrefix)]
    return list({id(file): file for file in found}.values())


def follow_above(plans: Iterable[object], lows: Iterable[LowLevelPlan]) -> None:
    """Let the files that `plans` name, but not `lows`, which a node looks after, be looked at when they are asked."""
    below = {id(file) for file in watched_files(lows)}
    for file in files_in(tuple(plans)):
        if id(file) not in below:
            file.follow()


def files_in(value: object) -> Iterator[WatchedFile]:
    """Yield every file that a plan of any kind names, or a tuple of plans: dataclasses over dataclasses and tuples."""
    if isinstance(value, WatchedFile):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from files_in(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from files_in(getattr(value, field.name))


class Watching:
    """Looks after the files of some plans for one link. Those of an input that ends are read once."""

    def __init__(self, plans: Iterable[LowLevelPlan], live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """Follow changes where the input is `live`; `clock` tells seconds."""
        self.files = watched_files(plans)
        self.live = live
        self.clock = clock
        self._counted: Counter[tuple[int, Looked]] = Counter()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Go by one version of each file in all that is done within; before that, look whether one has changed."""
        if not self.files:
            yield
            return
        if self.live:
            now = self.clock()
            for file in self.files:
                self._counted[id(file), file.refresh(now)] += 1
        hold(self.files)
        try:
            yield
        finally:
            release()

    def add_samples(self, samples: Samples, link: str) -> None:
        """Add what was counted. A file that several queries name is one, and counts as often as any of them read it."""
        of_path: dict[str, list[WatchedFile]] = {}
        for file in self.files:
            of_path.setdefault(file.path, []).append(file)
        for path, files in of_path.items():
            reloads, failed = (
                max(self._counted[id(file), looked] for file in files) for looked in (Looked.RELOADED, Looked.FAILED)
            )
            samples.set(WATCHLIST_ENTRIES, files[0].version.contents.entries, link, path)
            samples.add(WATCHLIST_RELOADS, reloads, link, path)
            samples.add(WATCHLIST_FAILED, failed, link, path)
