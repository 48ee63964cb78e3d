"""Expressions that look a value up in a file, which is read again when it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lowlevel.predicates import Membership
from lowlevel.types import Type
from lowlevel.watch.watched_file import WatchedFile

if TYPE_CHECKING:
    from lowlevel.expressions import Expression


@dataclass(frozen=True, slots=True)
class InWatchlist(Membership):
    """`in_list(operand, 'file')`: whether an address or an integer is in the list."""

    file: WatchedFile


@dataclass(frozen=True, slots=True)
class LongestPrefix:
    """`getlpmid(address, 'file')`: the label of the longest prefix in a file that the address is in, NULL without."""

    operand: Expression
    file: WatchedFile
    type: ClassVar[Type] = Type.TEXT
    nullable: ClassVar[bool] = True
