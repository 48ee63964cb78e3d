"""Functions that users define in Python, over whole columns.

A function is called for each row, or once with the columns of a batch as numpy arrays (`of_columns`), or it is compiled
with numba for each row (`compiled`). It is not called for rows in which an argument is NULL: their result is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from capture.errors import WiretideError
from lowlevel.expressions.columns import AnyVector, Names, TextVector, Vector
from lowlevel.expressions.types import Type

Array = npt.NDArray[Any]

DTYPES: dict[Type, type] = {Type.INT: np.int64, Type.FLOAT: np.float64, Type.BOOL: np.bool_}
"""Numpy types of parameters and results that are no texts. TIME is INT: ns since the epoch."""


class FunctionError(WiretideError, ValueError):
    """A function of a user is defined incorrectly, fails, or returns other values than its definition states."""

    status = 2


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function with the types of its parameters and of its result.

    `place`: its file, in messages. `source`: the text of the file, if `load` has read it: then another process executes
    the text instead of unpickling the function. `version` distinguishes other definitions with one name.
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    body: Callable[..., Any] = field(compare=False, repr=False)
    of_columns: bool = False
    compiled: bool = False
    source: str | None = field(default=None, repr=False)
    version: int = 0
    place: str = field(default="", compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text of the file instead of the function, if there is one."""
        if self.source is not None:
            return _reloaded, (self.source, self.place, self.name)
        return UserFunction, tuple(getattr(self, name) for name in self.__slots__)

    def apply(self, arguments: Sequence[AnyVector]) -> AnyVector:
        """Return the results for columns or constants. Raises FunctionError."""
        arrays = [_values(argument) for argument in arguments]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        valid = np.ones(shape, np.bool_)
        for argument in arguments:
            if argument.valid is not None:
                valid = valid & argument.valid
        chosen = [np.broadcast_to(array, shape)[valid] for array in arrays]
        values = self._call(chosen, int(np.count_nonzero(valid)))
        known = np.array([value is not None for value in values], np.bool_) if values.dtype == object else None
        if known is not None and not known.all():
            valid[valid] = known
            values = values[known]
        if self.result is Type.TEXT:
            return _texts(self, values, valid)
        data: Array = np.zeros(shape, DTYPES[self.result])
        data[valid] = self._checked(values)
        return Vector(data, valid)

    def _call(self, arguments: list[Array], rows: int) -> Array:
        try:
            if self.of_columns:
                with np.errstate(all="ignore"):
                    returned = np.ma.filled(self.body(*arguments), None) if rows else np.empty(0, object)
                if np.shape(returned) != (rows,):
                    got = f"an array of shape {np.shape(returned)}"
                    raise FunctionError(f"{self.shown} returned {got}, expected one value for each of {rows} rows")
                return np.asarray(returned)
            if self.compiled:
                with np.errstate(all="ignore"):
                    return np.asarray(_compiled(self)(*arguments))
            values = np.empty(rows, object)
            values[:] = [self.body(*row) for row in zip(*(array.tolist() for array in arguments), strict=True)]
            return values
        except FunctionError:
            raise
        except Exception as error:  # the user's code may raise any error
            import traceback

            frames = traceback.extract_tb(error.__traceback__)
            is_theirs = frames[-1].filename != __file__
            line = f" in line {frames[-1].lineno} of {frames[-1].filename}" if is_theirs else ""
            raise FunctionError(f"{self.shown} raised {type(error).__name__}{line}: {error}") from error

    def _checked(self, values: Array) -> Array:
        """Return values of the type of the result. Raises FunctionError for values of another type."""
        if values.dtype == object:
            values = np.array(values.tolist()) if len(values) else np.empty(0, DTYPES[self.result])
        allowed = {Type.INT: "bi", Type.FLOAT: "bif", Type.BOOL: "b"}[self.result]
        if values.dtype.kind not in allowed and not (values.dtype.kind == "u" and "i" in allowed):
            example = values.ravel()[0].item() if values.size else None
            got = f"{example!r} and other values of the type {values.dtype}"
            raise FunctionError(f"{self.shown} returned {got}, expected values of type {self.result}")
        return values

    @property
    def shown(self) -> str:
        """The name and the place of the function, for messages."""
        return f"the function {self.name}" + (f" ({self.place})" if self.place else "")


DEFINED: dict[str, UserFunction] = {}
"""The functions of this process by their names in lower case. A plan contains the functions that it uses."""

_versions = count(1)
_file: tuple[str, str] | None = None  # text and path of the file that is being loaded


def define(function: UserFunction) -> None:
    """Define a function, or replace its definition."""
    if _file is not None:
        source, place = _file
        function = replace(function, source=source, place=place)
    else:
        function = replace(function, version=next(_versions))
    DEFINED[function.name.lower()] = function


def load(path: Path) -> None:
    """Execute a Python file, which defines functions. Raises FunctionError."""
    try:
        source = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise FunctionError(f"{path} cannot be read: {error}") from None
    _execute(source, str(path))


def _execute(source: str, place: str) -> None:
    module = ModuleType("functions of a user")
    module.__file__ = place
    with _loading(source, place):
        try:
            exec(compile(source, place, "exec"), module.__dict__)  # the user asks for it
        except FunctionError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            import traceback

            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
            line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
            at = "" if line is None else f", line {line}"
            raise FunctionError(f"{place}{at}: {type(error).__name__}: {error}") from error


@contextmanager
def _loading(source: str, place: str) -> Iterator[None]:
    global _file  # the decorator in the file has no other way to learn where it is
    before, _file = _file, (source, place)
    try:
        yield
    finally:
        _file = before


@cache
def _reloaded(source: str, place: str, name: str) -> UserFunction:
    """Return a function of a file. Other processes execute the file once."""
    known = DEFINED.get(name.lower())
    if known is None or known.source != source:
        _execute(source, place)
    return DEFINED[name.lower()]


def _values(vector: AnyVector) -> Array:
    """Return the values of a column as an array; texts are objects."""
    if isinstance(vector, TextVector):
        names = np.array(vector.names or [""], object)
        ids = vector.ids if vector.valid is None else np.where(vector.valid, vector.ids, 0)
        return np.asarray(names[ids])
    assert isinstance(vector, Vector)
    return np.asarray(vector.data)


@cache
def _compiled(function: UserFunction) -> Callable[..., Array]:
    """Compile a function of numbers. Raises FunctionError if numba cannot compile it."""
    from numba import boolean, float64, int64, vectorize
    from numba.core.errors import NumbaError

    kinds = {Type.INT: int64, Type.FLOAT: float64, Type.BOOL: boolean}
    signature = kinds[function.result](*(kinds[kind] for kind in function.parameters))
    try:
        compiled: Callable[..., Array] = vectorize([signature], nopython=True)(function.body)  # type: ignore[no-untyped-call]
    except NumbaError as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise FunctionError(f"{function.shown} cannot be compiled by numba: {first}") from None
    return compiled


_names: dict[UserFunction, Names] = {}
_names_lock = Lock()


def _texts(function: UserFunction, values: Array, valid: npt.NDArray[np.bool_]) -> TextVector:
    """Return texts with the IDs that they have in all batches of the process, so that they can be groups."""
    distinct, indexes = np.unique(values.astype(str) if len(values) else np.empty(0, str), return_inverse=True)
    for value in values:
        if not isinstance(value, str):
            raise FunctionError(f"{function.shown} returned {value!r}, expected values of type {function.result}")
    with _names_lock:
        names = _names.setdefault(function, Names())
        ids_of_distinct = np.array([names.add(text) for text in distinct.tolist()], np.int64)
    ids = np.zeros(valid.shape, np.int64)
    ids[valid] = ids_of_distinct[indexes]
    return TextVector(ids, names.texts, valid)
