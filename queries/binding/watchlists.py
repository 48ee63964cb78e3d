"""`in_list(x, 'file')` and `getlpmid(address, 'file')`: the file is found and read where a query is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from capture.errors import InputError
from lowlevel.expressions.tree import InWatchlist, Literal, LongestPrefix
from lowlevel.expressions.types import Type
from lowlevel.watch.contents import Form
from lowlevel.watch.watched_file import WatchedFile
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.tree import Word

IN_LIST = "in_list"
LONGEST_PREFIX = "getlpmid"

FORMS = {IN_LIST: {Type.ADDRESS: Form.ADDRESSES, Type.INT: Form.NUMBERS}, LONGEST_PREFIX: {Type.ADDRESS: Form.LABELS}}
"""What the lines of a file say, by function and type of what is looked for."""

USAGES = {IN_LIST: "in_list(x, 'file')", LONGEST_PREFIX: "getlpmid(address, 'file')"}
"""How each function is called, by its name."""

_folder: ContextVar[Path | None] = ContextVar("folder of relative paths", default=None)


@contextmanager
def paths_from(folder: Path) -> Iterator[None]:
    """Let relative paths in queries that are compiled within begin at `folder`, not at the working directory."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def watch(sql: str, name: Word, operands: Sequence[Operand]) -> InWatchlist | LongestPrefix:
    """Check the arguments of the function called `name`, and read its file; any mistake is a `QueryError`."""
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
        file.read()
    except InputError as error:
        expected = f"a file with one {file.form} per line, from {_folder.get() or Path.cwd()} if relative"
        path.fail(str(error), expected)
    return (LongestPrefix if function == LONGEST_PREFIX else InWatchlist)(subject.bound, file)
