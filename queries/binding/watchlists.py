"""`in_list(x, 'file')`, `getlpmid(address, 'file')`, `mac_vendor(mac, 'file')`: the compilation reads the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from capture.errors import InputError
from lowlevel.expressions.tree import InWatchlist, Literal, LongestPrefix
from lowlevel.expressions.types import Type
from lowlevel.watch.contents import Form
from lowlevel.watch.watched_file import WatchedFile, read_watchlist
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.tree import Word

IN_LIST = "in_list"
LONGEST_PREFIX = "getlpmid"
MAC_VENDOR = "mac_vendor"

FORMS = {
    IN_LIST: {Type.ADDRESS: Form.ADDRESSES, Type.INT: Form.NUMBERS},
    LONGEST_PREFIX: {Type.ADDRESS: Form.LABELS},
    MAC_VENDOR: {Type.MAC: Form.VENDORS},
}
"""The form of a file's lines, by function and type of the first argument."""

USAGES = {
    IN_LIST: "in_list(x, 'file')",
    LONGEST_PREFIX: "getlpmid(address, 'file')",
    MAC_VENDOR: "mac_vendor(mac, 'file')",
}
"""Functions by name, each with an example of its call."""

_folder: ContextVar[Path | None] = ContextVar("folder of relative paths", default=None)


@contextmanager
def paths_from(folder: Path) -> Iterator[None]:
    """Resolve relative paths in queries that are compiled in this context from `folder`."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def watch(sql: str, name: Word, operands: Sequence[Operand]) -> InWatchlist | LongestPrefix:
    """Return the look-up and read its file. Raises QueryError for wrong arguments and for a wrong file."""
    function = name.text.lower()
    forms, usage = FORMS[function], USAGES[function]
    if len(operands) != 2:
        problem = f"{function} with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(problem, sql, name.start, usage)
    subject, path = operands[0], operands[1].meeting(Type.TEXT)
    if subject.type not in forms or isinstance(subject.bound, Literal):
        what = "a constant" if isinstance(subject.bound, Literal) else f"a value of type {subject.type}"
        subject.fail(f"{function} over {what}", f"a column or expression of type {' or '.join(forms)}")
    if not isinstance(path.bound, Literal) or not isinstance(path.bound.value, str):
        path.fail(f"{function} of a file that is no text", usage)
    file = WatchedFile(str((_folder.get() or Path.cwd()) / path.bound.value), forms[subject.type])
    try:
        read_watchlist(file)
    except InputError as error:
        expected = f"a file with one {file.form} per line, from {_folder.get() or Path.cwd()} if relative"
        path.fail(str(error), expected)
    return (InWatchlist if function == IN_LIST else LongestPrefix)(subject.bound, file)
