"""What is in a watchlist: its text, read and checked whole.

Three forms: addresses and prefixes to be in, integers to be in, and prefixes with a label each.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.address_constants import WIDTH
from lowlevel.watch.flatten import Halves, Numbers, Prefixes
from lowlevel.watch.lines import BEGIN, CODE, END, LABEL, LABEL_END, LINE, OTHER, labels_of, lines_of
from lowlevel.watch.ranges import AddressRanges

DIGITS = 19
"""Of an integer of 64 bits, at most."""


class Form(StrEnum):
    """What a line of a watchlist says."""

    ADDRESSES = "address or prefix"
    NUMBERS = "integer"
    LABELS = "prefix and label"


class WatchlistError(ValueError):
    """A text that is no watchlist; the message has the number of the line."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What one version of a watchlist says. `ranges` are of addresses, `numbers` sorted integers.

    A label in `ranges` is a place in `labels`, or 0 for each prefix of a list without labels. `entries` are lines.
    """

    entries: int
    ranges: AddressRanges | None = None
    numbers: Numbers | None = None
    labels: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Memory of what is searched."""
        return (0 if self.ranges is None else self.ranges.bytes) + (0 if self.numbers is None else self.numbers.nbytes)

    def holds(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which integers are in a list of them."""
        assert self.numbers is not None, "a list of integers"
        if len(self.numbers) == 0:
            return np.zeros(numbers.shape, np.bool_)
        places = np.searchsorted(self.numbers, numbers)
        return np.asarray(self.numbers[np.minimum(places, len(self.numbers) - 1)] == numbers)


def read_contents(data: bytes, form: Form) -> Contents:
    """Read the text of a watchlist; raises WatchlistError for the first line that is none of one."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise WatchlistError(f"line {line}: got bytes that are no text in UTF-8") from None
    lines = lines_of(data)
    if form is not Form.LABELS:
        _refuse_more(data, lines, form)
    if form is Form.NUMBERS:
        return Contents(len(lines), numbers=_numbers(data, lines))
    labels, names = _labels(data, lines) if form is Form.LABELS else (np.zeros(len(lines), np.int64), ())
    is_four = lines[:, CODE] != OTHER
    four, six = _four(lines[is_four], labels[is_four]), _others(data, lines[~is_four], labels[~is_four])
    of_lines = lines[is_four, LINE], lines[~is_four, LINE]
    once = [_once(each, numbers, names) for each, numbers in zip((four, six), of_lines, strict=True)]
    return Contents(len(lines), AddressRanges(*once), labels=names)


def _text(data: bytes, line: Numbers, begin: int = BEGIN, end: int = END) -> str:
    return data[int(line[begin]) : int(line[end])].decode()


def _refuse_more(data: bytes, lines: Numbers, form: Form) -> None:
    more = np.flatnonzero(lines[:, LABEL_END] > lines[:, END])
    if len(more):
        line = lines[more[0]]
        behind = _text(data, line, END, LABEL_END).strip()
        raise WatchlistError(f"line {line[LINE]}: got '{behind}' behind the first word, expected one {form} per line")


def _numbers(data: bytes, lines: Numbers) -> Numbers:
    numbers = []
    for line in lines:
        text = _text(data, line)
        digits = text[1:] if text[0] in "+-" else text
        whole = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS
        if not whole or not -(2**63) <= int(text) < 2**63:
            raise WatchlistError(f"line {line[LINE]}: got '{text}', expected an integer of 64 bits with sign")
        numbers.append(int(text))
    return np.unique(np.array(numbers, np.int64))


def _labels(data: bytes, lines: Numbers) -> tuple[Numbers, tuple[str, ...]]:
    """Return the place of each line's label among the distinct ones, and those."""
    bare = np.flatnonzero(lines[:, LABEL] >= lines[:, LABEL_END])
    if len(bare):
        line = lines[bare[0]]
        raise WatchlistError(
            f"line {line[LINE]}: got '{_text(data, line)}' without a label, expected '10.0.0.0/8 name'"
        )
    encoded = labels_of(data, lines).dictionary_encode()
    return np.asarray(encoded.indices).astype(np.int64), tuple(encoded.dictionary.to_pylist())


def _four(lines: Numbers, labels: Numbers) -> Prefixes:
    codes = lines[:, CODE]
    return Prefixes(32, np.zeros(len(codes), np.uint64), (codes >> 6).astype(np.uint64), codes & 63, labels)


def _others(data: bytes, lines: Numbers, labels: Numbers) -> Prefixes:
    """Read what is no IPv4: IPv6, or nothing of the kind."""
    found = [_six(data[begin:end].decode(), number) for number, begin, end in lines[:, (LINE, BEGIN, END)].tolist()]
    highs, lows, lengths = ([each[part] for each in found] for part in range(3))
    return Prefixes(128, _halves(highs), _halves(lows), np.array(lengths, np.int64), labels)


def _halves(numbers: list[int]) -> Halves:
    return np.array(numbers, np.uint64)


def _six(text: str, line: int) -> tuple[int, int, int]:
    """Return the halves and the length of a prefix of IPv6, or an address alone."""
    base, slash, digits = text.partition("/")
    version = 6 if ":" in base else 4
    try:
        packed = socket.inet_pton(socket.AF_INET6 if version == 6 else socket.AF_INET, base)
    except (OSError, ValueError):
        raise WatchlistError(f"line {line}: got '{text}', expected an address or a prefix like '10.0.0.0/8'") from None
    width = WIDTH[version]
    whole = digits.isascii() and digits.isdigit() and len(digits) <= 3 and str(int(digits)) == digits
    if slash and not (whole and int(digits) <= width):
        raise WatchlistError(f"line {line}: '{text}' has the length '{digits}', IPv{version} has 0 to {width}")
    length = int(digits) if slash else width
    value = int.from_bytes(packed)
    if value & ((1 << (width - length)) - 1):
        raise WatchlistError(f"line {line}: '{text}' has host bits set, expected the network's own address")
    high, low = divmod(value, 2**64)
    return high, low, length


def _once(prefixes: Prefixes, lines: Numbers, names: tuple[str, ...]) -> Prefixes:
    """Sort them and leave out repetitions; one prefix with two labels is an error."""
    ordered, order = prefixes.sorted()
    again = ordered.repeated()
    differing = again[ordered.labels[again] != ordered.labels[again - 1]]
    if len(differing):
        first, second = sorted(int(lines[order[place]]) for place in (differing[0] - 1, differing[0]))
        labels = " and ".join(f"'{names[ordered.labels[place]]}'" for place in (differing[0] - 1, differing[0]))
        raise WatchlistError(f"lines {first} and {second}: one prefix with two labels, {labels}")
    return ordered.without(again)
