"""User-defined functions in Python, over whole columns.

There are three kinds of functions: called for each row; called once per batch with the columns as numpy arrays
(`of_columns`); or compiled by numba and called for each row (`compiled`). A function is not called for rows in which
an argument is NULL, except if the parameter is in `optional`. The result of these rows is NULL.
"""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields, replace
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.columns import AnyVector, BytesVector, Mask, Names, TextVector, Vector, shape_of
from lowlevel.expressions.types import Type

Array = npt.NDArray[Any]

DTYPES: dict[Type, type] = {Type.INT: np.int64, Type.FLOAT: np.float64, Type.BOOL: np.bool_}
"""Numpy types of parameters and results that are neither texts nor bytes. TIME is INT: ns since the epoch."""

RETURN_TYPES: dict[Type, tuple[type, ...]] = {
    Type.INT: (int, np.integer, np.bool_),
    Type.FLOAT: (int, float, np.integer, np.floating, np.bool_),
    Type.BOOL: (bool, np.bool_),
    Type.TEXT: (str,),
}
"""Python types of the values that a function with a type of result may return."""

RETURN_KINDS: dict[Type, str] = {Type.INT: "biu", Type.FLOAT: "biuf", Type.BOOL: "b", Type.TEXT: ""}
"""Kinds of numpy types that a function may return; arrays of objects and texts are checked by RETURN_TYPES."""

ANNOTATIONS: dict[Type, str] = {
    Type.INT: "int", Type.FLOAT: "float", Type.BOOL: "bool", Type.TEXT: "str", Type.BYTES: "bytes",
}  # fmt: skip
"""Names of types in Python, for messages."""


class FunctionError(WiretideError, ValueError):
    """A user-defined function is defined incorrectly, fails, or returns values of another type than declared."""

    status = 2


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function with the types of its parameters and of its result.

    `optional`: the indexes of the parameters that receive NULL. `location`: its file, in messages. `source`: the text
    of the file, if `load` has read it: then another process executes the text instead of unpickling the function.
    `version` distinguishes several definitions of the same name.
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    body: Callable[..., Any] = field(compare=False, repr=False)
    of_columns: bool = False
    compiled: bool = False
    optional: tuple[int, ...] = ()
    source: str | None = field(default=None, repr=False)
    version: int = 0
    location: str = field(default="", compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text of the file instead of the function, if there is one."""
        if self.source is not None:
            return _reloaded, (self.source, self.location, self.name)
        return UserFunction, tuple(getattr(self, one.name) for one in fields(self))

    def apply(self, arguments: Sequence[AnyVector]) -> AnyVector:
        """Return the results for columns or constants. Raises FunctionError."""
        shape = np.broadcast_shapes(*(shape_of(argument) for argument in arguments))
        valid = np.ones(shape, np.bool_)
        for index, argument in enumerate(arguments):
            if argument.valid is not None and index not in self.optional:
                valid = valid & argument.valid
        rows = int(np.count_nonzero(valid))
        values: Array = np.empty(0, DTYPES.get(self.result, object))
        if rows:
            given = [
                self._argument(argument, valid, index in self.optional) for index, argument in enumerate(arguments)
            ]
            values, known = self._call(given, rows)
            if known is not None:
                valid[valid] = known
                values = values[known]
        if self.result is Type.TEXT:
            return self._texts(values, valid)
        data: Array = np.zeros(shape, DTYPES[self.result])
        data[valid] = values
        return Vector(data, valid)

    def _argument(self, vector: AnyVector, rows: Mask, optional: bool) -> Array:
        """Return the values of an argument in the given rows. NULLs are None, or masked in arrays of numbers."""
        null = None
        if optional:
            present = np.True_ if vector.valid is None else vector.valid
            null = ~np.broadcast_to(present, rows.shape)[rows]
        match vector:
            case Vector(data):
                numbers: Array = np.broadcast_to(data, rows.shape)[rows]
                if null is None:
                    return numbers
                if self.of_columns:
                    return np.ma.MaskedArray(numbers, null)
                values = numbers.astype(object)
            case TextVector(ids, names):
                known = ids if vector.valid is None else np.where(vector.valid, ids, 0)
                values = _texts_of_ids(np.broadcast_to(known, rows.shape)[rows], names)
            case BytesVector(data, start, length):
                spans = zip(start[rows].tolist(), length[rows].tolist(), strict=True)
                values = np.empty(int(np.count_nonzero(rows)), object)
                values[:] = [data[first : first + size].tobytes() for first, size in spans]
            case _:
                raise TypeError(f"got {type(vector).__name__}, expected numbers, texts or bytes")
        if null is not None:
            values[null] = None
        return values

    def _call(self, arguments: list[Array], rows: int) -> tuple[Array, Mask | None]:
        """Return the results, and a mask of the results that are not NULL; the mask is None if all are."""
        if not self.of_columns and not self.compiled:
            columns = [array.tolist() for array in arguments]
            returned: list[Any] = []
            try:
                returned.extend(map(self.body, *columns))
                if len(returned) < rows:  # map ends without an error at the StopIteration of a function
                    raise RuntimeError("StopIteration")
            except (Exception, SystemExit) as error:  # the user's code may raise any error
                row = len(returned)  # list.extend keeps the results before the error
                raise self._failure(error, [column[row] for column in columns]) from error
            return self._checked_values(returned, columns)
        try:
            with np.errstate(all="ignore"):
                result = (_compiled(self) if self.compiled else self.body)(*arguments)
        except FunctionError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failure(error, arguments) from error
        try:
            array = np.ma.asanyarray(result)
        except (TypeError, ValueError) as error:
            got = f"a value of type {type(result).__name__}, which is no array ({error})"
            raise FunctionError(
                f"{self.name_in_messages} returned {got}, expected a numpy array of {rows} values"
            ) from None
        if array.shape != (rows,):
            got = f"{type(result).__name__} of shape {array.shape}"
            raise FunctionError(
                f"{self.name_in_messages} returned {got}, expected one value for each of {rows} rows: ({rows},)"
            )
        known = None if array.mask is np.ma.nomask else ~np.ma.getmaskarray(array)
        return self._checked_array(array.data, known)

    def _checked_array(self, values: Array, known: Mask | None) -> tuple[Array, Mask | None]:
        """Check the type of a numpy array of results. Raises FunctionError."""
        kind = values.dtype.kind
        if kind == "O" or (kind in "UT" and self.result is Type.TEXT):
            returned = values.tolist()
            if known is not None:
                returned = [value if is_known else None for value, is_known in zip(returned, known, strict=True)]
            return self._checked_values(returned, None)
        if kind not in RETURN_KINDS[self.result]:
            got = f"an array of {values.dtype} such as {reprlib.repr(values[:1].tolist())}"
            raise FunctionError(
                f"{self.name_in_messages} returned {got}, expected values of type {self.result} ({self._python})"
            )
        if kind == "u" and self.result is Type.INT:
            most = int(np.max(values if known is None else values[known], initial=0))
            if most >= 2**63:
                raise self._overflow(most)
        return values, known

    def _checked_values(self, returned: list[Any], columns: list[list[Any]] | None) -> tuple[Array, Mask | None]:
        """Convert a list of results, in which None is NULL. Raises FunctionError for values of another type."""
        kinds = set(map(type, returned))
        wrong = tuple(
            kind for kind in kinds if kind is not type(None) and not issubclass(kind, RETURN_TYPES[self.result])
        )
        if wrong:
            row = next(row for row, value in enumerate(returned) if type(value) in wrong)
            of = "" if columns is None else f" for the arguments {_shown_values([column[row] for column in columns])}"
            got = f"{_shown_values([returned[row]])}{of}"
            raise FunctionError(
                f"{self.name_in_messages} returned {got}, expected values of type {self.result} ({self._python})"
            )
        known = None
        if type(None) in kinds:
            known = np.array([value is not None for value in returned], np.bool_)
            rest = 0 if self.result is not Type.TEXT else ""
            returned = [rest if value is None else value for value in returned]
        if self.result is Type.TEXT:
            texts = np.empty(len(returned), object)
            texts[:] = returned
            return texts, known
        try:
            return np.array(returned, DTYPES[self.result]), known
        except OverflowError:
            large = 2**63 if self.result is Type.INT else 2**1023
            raise self._overflow(
                next(value for value in returned if value == value and not -large <= value < large)
            ) from None

    def _overflow(self, value: int) -> FunctionError:
        limits = "an integer from -2**63 to 2**63 - 1" if self.result is Type.INT else "a number below 2**1024"
        return FunctionError(f"{self.name_in_messages} returned {reprlib.repr(value)}, expected {limits}")

    def _failure(self, error: BaseException, arguments: Sequence[Any]) -> FunctionError:
        """Return the error for an exception of the function, with the last line of the user's file in its traceback."""
        return FunctionError(f"the function {self.name} raised {failure_text(self.body, error, arguments)}")

    def _texts(self, values: Array, valid: Mask) -> TextVector:
        """Return texts with the IDs that they have in all batches of the process, so that they can be groups."""
        returned = values.tolist()
        distinct = dict.fromkeys(returned)
        for text in distinct:
            if not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    got = ascii(text[:40])
                    raise FunctionError(
                        f"{self.name_in_messages} returned {got}, expected a text of Unicode characters"
                    ) from None
        with _names_lock:
            names = _names.setdefault(self, Names())
            of_text = {text: names.add(str.__str__(text)) for text in distinct}  # also for subclasses of str
        ids = np.zeros(valid.shape, np.int64)
        ids[valid] = np.fromiter(map(of_text.__getitem__, returned), np.int64, len(returned))
        return TextVector(ids, names.texts, valid)

    @property
    def usage(self) -> str:
        """A call of the function with the types of its parameters."""
        return f"{self.name}({', '.join(self.parameters)})"

    @property
    def name_in_messages(self) -> str:
        """The name and the location of the function, for messages."""
        return f"the function {self.name}" + (f" ({self.location})" if self.location else "")

    @property
    def _python(self) -> str:
        return ANNOTATIONS[self.result]


def _texts_of_ids(ids: npt.NDArray[np.int64], names: Sequence[str]) -> Array:
    """Return the texts of IDs. A list of names can be much longer than a batch, so only its used names are copied."""
    distinct, indexes = np.unique(ids, return_inverse=True)
    texts = np.empty(len(distinct), object)
    texts[:] = [names[text_id] if names else "" for text_id in distinct.tolist()]
    return np.asarray(texts[indexes])


def failure_text(body: Callable[..., Any], error: BaseException, arguments: Sequence[Any]) -> str:
    """Return an exception of a user's function, the last line of its file in the traceback, and the arguments."""
    import traceback

    code = getattr(inspect.unwrap(body), "__code__", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if frame.filename != __file__]
    of_file = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    last = (of_file or frames)[-1:]
    line = "".join(f" in line {frame.lineno} of {frame.filename}" for frame in last)
    text = " ".join(str(error).split("\n"))
    what = f"{type(error).__name__}{line}" + (f": {text}" if text else "")
    return f"{what}; its arguments: {_shown_values(arguments)}"


def _shown_values(values: Sequence[Any]) -> str:
    """Return values with their types, for messages; arrays with their numbers of values."""
    return ", ".join(
        f"{len(value)} values of {value.dtype}"
        if isinstance(value, np.ndarray)
        else f"{reprlib.repr(value)} ({type(value).__name__})"
        for value in values
    )


DEFINED: dict[str, UserFunction] = {}
"""The functions of this process by their names in lower case. A plan contains the functions that it uses."""

_versions = count(1)
_file: tuple[str, str] | None = None  # text and path of the file that is being loaded


def define(function: UserFunction) -> None:
    """Define a function, or replace its definition."""
    if _file is not None:
        source, path = _file
        function = replace(function, source=source, location=path)
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


def _execute(source: str, path: str) -> None:
    module = ModuleType("functions of a user")
    module.__file__ = path
    with _loading(source, path):
        try:
            exec(compile(source, path, "exec"), module.__dict__)  # the file is code that the user has written
        except FunctionError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            import traceback

            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
            line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
            at = "" if line is None else f", line {line}"
            raise FunctionError(f"{path}{at}: {type(error).__name__}: {error}") from error


@contextmanager
def _loading(source: str, path: str) -> Iterator[None]:
    global _file  # the decorator in the file has no other way to learn where it is
    before, _file = _file, (source, path)
    try:
        yield
    finally:
        _file = before


@cache
def _reloaded(source: str, path: str, name: str) -> UserFunction:
    """Return a function of a file. Other processes execute the file once."""
    known = DEFINED.get(name.lower())
    if known is None or known.source != source:
        _execute(source, path)
    return DEFINED[name.lower()]


@cache
def _compiled(function: UserFunction) -> Callable[..., Array]:
    """Compile a function of numbers. Raises FunctionError if numba cannot compile it.

    numba infers the type of the result: with a declared type it would silently convert 1.5 to 1.
    """
    from numba import boolean, float64, int64, vectorize
    from numba.core.errors import NumbaError

    kinds = {Type.INT: int64, Type.FLOAT: float64, Type.BOOL: boolean}
    signature = tuple(kinds[kind] for kind in function.parameters)
    try:
        compiled: Callable[..., Array] = vectorize([signature], nopython=True)(function.body)  # type: ignore[no-untyped-call]
    except NumbaError as error:
        raise FunctionError(f"{function.name_in_messages} cannot be compiled by numba: {_reason(str(error))}") from None
    except TypeError as error:  # a result without a numpy type, such as None
        raise FunctionError(f"{function.name_in_messages} cannot be compiled by numba: its result: {error}") from None
    return compiled


def _reason(report: str) -> str:
    """Return the first line of numba's report that contains a reason, with the line of the file."""
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Failed in", "File "))] or lines or [""]
    number = re.search(r'^File "[^"]*", line (\d+)|^During: typing of .* \((\d+)\)', report, re.MULTILINE)
    return reasons[0] + (f" (line {number[1] or number[2]})" if number else "")


_names: dict[UserFunction, Names] = {}
_names_lock = Lock()
