"""Functions that read files: watchlists and settings. A run reads a file again when it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from capture.errors import InputError
from lowlevel.expressions.tree import InWatchlist, Literal, LongestPrefix, SettingValue
from lowlevel.expressions.types import Type
from lowlevel.watch.contents import Contents, Form
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.settings import TYPES, Setting, read_value
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
"""The form of the lines of a file, by function and by the type of the first argument."""

LIFETIME_FORMS = {IN_LIST: Form.LIFETIMES, LONGEST_PREFIX: Form.HISTORY}
"""The form of a file whose rows have lifetimes, by the function of an address and a time."""

USAGES = {
    IN_LIST: "in_list(x, 'file'), or in_list(address, 'file', ts) for rows that are true for a time",
    LONGEST_PREFIX: "getlpmid(address, 'file'), or getlpmid(address, 'file', ts) for rows that are true for a time",
    MAC_VENDOR: "mac_vendor(mac, 'file')",
}
"""Functions by name, each with an example of its call."""

SETTING = "setting"
SETTING_USAGE = "setting('limits.toml', 'least') or setting('limits.toml', 'least', 1, 5000) with bounds"

FindCopy = Callable[[str], Path]
"""Returns the path that the copy of a file has, by the absolute path of the file."""

_folder: ContextVar[Path | None] = ContextVar("folder of relative paths", default=None)
_find_copy: ContextVar[FindCopy | None] = ContextVar("copies of files that are wrong or missing", default=None)
_refusal: ContextVar[str | None] = ContextVar("reason why no file may be read", default=None)


@contextmanager
def paths_from(folder: Path) -> Iterator[None]:
    """In this context, relative paths in queries start at `folder`."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


@contextmanager
def copies_allowed(find_copy: FindCopy) -> Iterator[None]:
    """In this context, a file may be wrong or missing if a run that continues has a valid copy of it."""
    token = _find_copy.set(find_copy)
    try:
        yield
    finally:
        _find_copy.reset(token)


def read_file_or_copy(file: WatchedFile) -> Contents:
    """Return the contents of a file. Raises InputError if it is wrong or missing, and has no valid copy."""
    try:
        return read_watchlist(file)
    except InputError:
        find_copy = _find_copy.get()
        copy = None if find_copy is None else find_copy(file.path)
        if copy is None or not copy.exists():
            raise
        try:
            return read_watchlist(replace(file, read_from=str(copy)))
        except InputError:
            pass
        raise


@contextmanager
def files_refused(reason: str) -> Iterator[None]:
    """In this context, functions that read files are errors in queries.

    The message ends with `reason`.
    """
    token = _refusal.set(reason)
    try:
        yield
    finally:
        _refusal.reset(token)


def absolute_path(sql: str, clause: Word, path: str) -> str:
    """Return the absolute path of a file that a clause reads. Raises QueryError if queries may not read files."""
    _check_allowed(sql, clause)
    return str((_folder.get() or Path.cwd()) / path)


def _check_allowed(sql: str, name: Word) -> None:
    reason = _refusal.get()
    if reason is not None:
        raise QueryError(f"{name.text.lower()}, which reads a file, {reason}", sql, name.start, "a query without files")


def bind_watchlist(sql: str, name: Word, operands: Sequence[Operand]) -> InWatchlist | LongestPrefix:
    """Read the file and return the look-up. Raises QueryError for wrong arguments and for a wrong file."""
    _check_allowed(sql, name)
    function = name.text.lower()
    forms, usage = FORMS[function], USAGES[function]
    is_timed = len(operands) == 3 and function in LIFETIME_FORMS
    if len(operands) != 2 and not is_timed:
        problem = f"{function} with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(problem, sql, name.start, usage)
    subject, path = operands[0], operands[1].comparable_with(Type.TEXT)
    if subject.type not in forms or isinstance(subject.bound, Literal):
        received = "a constant" if isinstance(subject.bound, Literal) else f"a value of type {subject.type}"
        subject.fail(f"{function} over {received}", f"a column or expression of type {' or '.join(forms)}")
    if not isinstance(path.bound, Literal) or not isinstance(path.bound.value, str):
        path.fail(f"{function} with a file name that is not a text", usage)
    form, time = forms[subject.type], None
    if is_timed:
        form, time = LIFETIME_FORMS[function], operands[2].bound
        if subject.type is not Type.ADDRESS:
            subject.fail(f"{function} at a time over a value of type {subject.type}", "an address")
        if time.type is not Type.TIME:
            operands[2].fail(f"{function} at a value of type {time.type}", "a time, for example ts")
    file = WatchedFile(str((_folder.get() or Path.cwd()) / path.bound.value), form)
    try:
        read_file_or_copy(file)
    except InputError as error:
        path.fail(str(error), f"{form.expected}, from {_folder.get() or Path.cwd()} if relative")
    return (InWatchlist if function == IN_LIST else LongestPrefix)(subject.bound, file, time)


def setting_value(sql: str, name: Word, operands: Sequence[Operand]) -> SettingValue:
    """Read the file and return the setting. Its type is the type of the value, or FLOAT if the bounds are floats.

    Raises QueryError for wrong arguments and for a wrong file.
    """
    _check_allowed(sql, name)
    if len(operands) not in (2, 4):
        problem = f"setting with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(problem, sql, name.start, SETTING_USAGE)
    texts = [operand.comparable_with(Type.TEXT) for operand in operands[:2]]
    for operand, role in zip(texts, ("file", "name"), strict=True):
        if not isinstance(operand.bound, Literal) or not isinstance(operand.bound.value, str):
            operand.fail(f"a setting whose {role} is not a text", SETTING_USAGE)
    path, key = (str(text.bound.value) for text in texts if isinstance(text.bound, Literal))
    bounds = [_bound(operand) for operand in operands[2:]]
    folder = _folder.get() or Path.cwd()
    path = str(folder / path)
    expected = f"a TOML file with the line {key} = 100, from {folder} if relative"
    try:
        type_ = TYPES[type(read_value(Path(path).read_bytes(), key))]
    except OSError as error:
        texts[0].fail(f"{path}: cannot be read as a setting: {error.strerror}", expected)
    except WatchlistError as error:
        texts[0].fail(f"{path}: {error}", expected)
    if bounds and type_ is Type.BOOL:
        texts[1].fail(f"bounds of the setting '{key}', which is true or false", SETTING_USAGE)
    if type_ is Type.INT and any(isinstance(bound, float) for bound in bounds):
        type_ = Type.FLOAT
    file = WatchedFile(path, Setting(key, type_, *bounds))
    try:
        read_file_or_copy(file)
    except InputError as error:
        texts[0].fail(str(error), expected)
    return SettingValue(file, type_)


def _bound(operand: Operand) -> int | float:
    value = operand.bound.value if isinstance(operand.bound, Literal) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or operand.type not in (Type.INT, Type.FLOAT):
        operand.fail("a bound of a setting that is not a number", SETTING_USAGE)
    return value
