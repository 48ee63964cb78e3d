"""Casts between values and texts, over whole columns. NULL stays NULL.

Texts have the same form as in results: times in ISO 8601, addresses as in RFC 5952. A text that is not a value of the
type becomes NULL. The text IDs of one batch are not valid in other batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import numpy as np

from lowlevel.expressions.columns import AddressVector, AnyVector, Mask, Names, TextVector, Vector
from lowlevel.expressions.types import Type

_INTEGER = r"[+-]?[0-9]{1,19}"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity)|nan"
_BOOLEANS = {"true": True, "t": True, "1": True, "yes": True, "false": False, "f": False, "0": False, "no": False}
_MAC = r"[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}"

INT64_LIMIT = 2**63
"""Smallest positive integer that does not fit into 64 bits."""


def write_texts(vector: AnyVector, kind: Type) -> TextVector:
    """Return the values of type `kind` as texts. Each distinct value is written once."""
    if isinstance(vector, AddressVector):
        return _write_addresses(vector)
    assert isinstance(vector, Vector)
    data = vector.data if vector.valid is None else np.where(vector.valid, vector.data, 0)
    distinct, indexes = np.unique(data, return_inverse=True)
    return _texts(_WRITERS[kind](distinct), indexes.reshape(data.shape), vector.valid)


def _write_times(times: np.ndarray) -> list[str]:
    import pyarrow as pa

    from lowlevel.times import time_texts

    texts: list[str] = time_texts(pa.array(times)).to_pylist()
    return texts


def _write_addresses(vector: AddressVector) -> TextVector:
    from lowlevel.expressions.arrow import arrow_column, to_text

    encoded = arrow_column(vector, vector.low.size, Type.ADDRESS).dictionary_encode()
    indexes = encoded.indices.fill_null(0).to_numpy().astype(np.int64)
    return _texts(to_text(encoded.dictionary).to_pylist(), indexes.reshape(vector.low.shape), vector.valid)


def _texts(values: list[str], indexes: np.ndarray, valid: Mask | None) -> TextVector:
    """Return the texts `values` at `indexes`."""
    names = Names()
    ids = np.array([names.add(value) for value in values] or [0], np.int64)
    return TextVector(np.asarray(ids[indexes]), names.texts or [""], valid)


def concatenate(left: TextVector, right: TextVector) -> TextVector:
    """Return the texts of both columns, row by row, as one text. Each distinct pair is joined once."""
    valid = right.valid if left.valid is None else left.valid if right.valid is None else left.valid & right.valid
    one, other = np.broadcast_arrays(_ids_or_zero(left), _ids_or_zero(right))
    width = max(1, len(right.names))
    pairs, indexes = np.unique(one * width + other, return_inverse=True)
    values = [_text_of(left, pair // width) + _text_of(right, pair % width) for pair in pairs.tolist()]
    return _texts(values, indexes.reshape(one.shape), valid)


def _ids_or_zero(texts: TextVector) -> np.ndarray:
    return texts.ids if texts.valid is None else np.where(texts.valid, texts.ids, 0)


def _text_of(texts: TextVector, text_id: int) -> str:
    return texts.names[text_id] if texts.names else ""


def read_texts(texts: TextVector, kind: Type) -> Vector | AddressVector:
    """Return the values of texts as type `kind`. Each distinct text is read once."""
    distinct, indexes = np.unique(_ids_or_zero(texts), return_inverse=True)
    read = _READERS[kind]
    values = [read(_text_of(texts, text_id).strip()) for text_id in distinct.tolist()]
    indexes = indexes.reshape(texts.ids.shape)
    known = np.array([value is not None for value in values])[indexes]
    valid = known if texts.valid is None else known & texts.valid
    if kind is Type.ADDRESS:
        addresses = [(0, 0) if value is None else value for value in values]
        version = np.array([version for version, _ in addresses])[indexes]
        high, low = (
            np.array([number >> shift & 2**64 - 1 for _, number in addresses], np.uint64)[indexes] for shift in (64, 0)
        )
        return AddressVector(np.where(valid, version, 0), high, low, valid)
    dtype = {Type.FLOAT: np.float64, Type.BOOL: np.bool_}.get(kind, np.int64)
    return Vector(np.array([0 if value is None else value for value in values], dtype)[indexes], valid)


def _read_integer(text: str) -> int | None:
    if re.fullmatch(_INTEGER, text):
        number = int(text)
    else:
        real = _read_float(text)
        if real is None or not abs(real) < INT64_LIMIT:
            return None
        number = round(real)
    return number if -INT64_LIMIT <= number < INT64_LIMIT else None


def _read_float(text: str) -> float | None:
    return float(text) if re.fullmatch(_NUMBER, text, re.ASCII | re.IGNORECASE) else None


def _read_time(text: str) -> int | None:
    from lowlevel.times import TimeError, parse_time

    try:
        return parse_time(text)
    except TimeError:
        return None


def _read_address(text: str) -> tuple[int, int] | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address.version, int(address)


def _read_mac(text: str) -> int | None:
    return int(text.replace("-", "").replace(":", ""), 16) if re.fullmatch(_MAC, text) else None


_WRITERS: dict[Type, Callable[[np.ndarray], list[str]]] = {
    Type.INT: lambda numbers: [str(number) for number in numbers.tolist()],
    Type.FLOAT: lambda numbers: [repr(number + 0.0) for number in numbers.tolist()],  # -0.0 is equal to 0.0
    Type.TIME: _write_times,
    Type.MAC: lambda macs: [mac.to_bytes(6, "big").hex(":") for mac in macs.tolist()],
}

_READERS: dict[Type, Callable[[str], Any]] = {
    Type.INT: _read_integer,
    Type.FLOAT: _read_float,
    Type.BOOL: lambda text: _BOOLEANS.get(text.lower()),
    Type.TIME: _read_time,
    Type.ADDRESS: _read_address,
    Type.MAC: _read_mac,
}
