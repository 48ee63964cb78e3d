"""The format of watchlist files. All lines are read and checked.

There are six forms of files: addresses and prefixes, integers, prefixes with labels, vendors of MAC addresses
(`lowlevel.watch.vendors`), and prefixes with a lifetime, without or with labels (`lowlevel.watch.timed_files`).
The kernels are functions that numba compiles to machine code.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from capture.native import helper, kernel
from lowlevel.expressions.address_constants import WIDTH
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.history import COLUMNS, History
from lowlevel.watch.ranges import AddressRanges, Halves, Numbers, Prefixes
from lowlevel.watch.settings import Setting

# A line is a word and a label:
#
#     203.0.113.0/24   Example Ltd.   # a comment until the end of the line
#
# A blank, a tab or a comma ends the word. The kernel splits the lines and reads IPv4 addresses and prefixes, which are
# nearly all words of a long list. Python reads the other words.


LINE, BEGIN, END, LABEL, LABEL_END, CODE = range(6)
"""Fields of a line: line number, bounds of word and label (offsets), and the code of the word (`ipv4_code`)."""

FIELD_COUNT = 6
"""Number of fields of a line."""
OTHER = -1
"""The code of a word that is not an IPv4 address or prefix."""

NEWLINE, TAB, RETURN, BLANK, HASH, COMMA, DOT, SLASH, ZERO, NINE = 10, 9, 13, 32, 35, 44, 46, 47, 48, 57


@helper
def is_blank(byte):  # type: ignore[no-untyped-def]
    """Return whether a byte is a blank, a tab or a carriage return."""
    return (byte == BLANK) | (byte == TAB) | (byte == RETURN)


@helper
def find_number_end(data, start, end, max_digits):  # type: ignore[no-untyped-def]
    """Return the end of the decimal number at `start`. Return `start` for no number, too many digits or a leading 0."""
    stop = start
    while stop < end and stop - start <= max_digits and data[stop] >= ZERO and data[stop] <= NINE:
        stop += 1
    if stop - start > max_digits or (stop - start > 1 and data[start] == ZERO):
        return start
    return stop


@helper
def read_number(data, start, end):  # type: ignore[no-untyped-def]
    """Return the decimal number in bytes `[start, end)`."""
    value = np.int64(0)
    for offset in range(start, end):
        value = value * 10 + (np.int64(data[offset]) - ZERO)
    return value


@helper
def ipv4_code(data, begin, end):  # type: ignore[no-untyped-def]
    """Return `address << 6 | length` of the IPv4 address or prefix in `[begin, end)`; OTHER for other words.

    The length of an address is 32. A prefix with host bits is OTHER.
    """
    address = 0
    offset = begin
    for octet in range(4):
        if octet > 0:
            if offset >= end or data[offset] != DOT:
                return OTHER
            offset += 1
        stop = find_number_end(data, offset, end, 3)
        value = read_number(data, offset, stop)
        if stop == offset or value > 255:
            return OTHER
        address = address * 256 + value
        offset = stop
    length = 32
    if offset < end:
        if data[offset] != SLASH:
            return OTHER
        stop = find_number_end(data, offset + 1, end, 2)
        length = read_number(data, offset + 1, stop)
        if stop == offset + 1 or stop < end or length > 32:
            return OTHER
        if address & ((1 << (32 - length)) - 1):
            return OTHER
    return address << 6 | length


@kernel("i64(u8*, i64, i64*)")
def read_lines(data, size, out):  # type: ignore[no-untyped-def]
    """Write the fields of each line of `data` that contains a word to `out`. Return the number of these lines.

    `out` has FIELD_COUNT numbers per line, for one line more than `data` has line ends. Blanks around labels are
    removed.
    """
    entry_count = 0
    line_number = 0
    line_start = 0
    while line_start < size:
        line_number += 1
        end = line_start
        while end < size and data[end] != NEWLINE:
            end += 1
        stop = line_start
        while stop < end and data[stop] != HASH:
            stop += 1
        word = line_start
        while word < stop and is_blank(data[word]):
            word += 1
        while stop > word and is_blank(data[stop - 1]):
            stop -= 1
        if word < stop:
            word_end = word
            while word_end < stop and not (is_blank(data[word_end]) | (data[word_end] == COMMA)):
                word_end += 1
            label = word_end
            while label < stop and is_blank(data[label]):
                label += 1
            if label < stop and data[label] == COMMA:
                label += 1
                while label < stop and is_blank(data[label]):
                    label += 1
            base = entry_count * FIELD_COUNT
            out[base + LINE] = line_number
            out[base + BEGIN] = word
            out[base + END] = word_end
            out[base + LABEL] = label
            out[base + LABEL_END] = stop
            out[base + CODE] = ipv4_code(data, word, word_end)
            entry_count += 1
        line_start = end + 1
    return entry_count


@kernel("i64(u8*, i64*, i64, u8*, i64*)")
def gather_labels(data, lines, count, out, offsets):  # type: ignore[no-untyped-def]
    """Copy the labels of `count` lines to `out`. Return their total number of bytes.

    The label of line i is in the bytes `[offsets[i], offsets[i + 1])`.
    """
    out_offset = 0
    for line in range(count):
        offsets[line] = out_offset
        for offset in range(lines[line * FIELD_COUNT + LABEL], lines[line * FIELD_COUNT + LABEL_END]):
            out[out_offset] = data[offset]
            out_offset += 1
    offsets[count] = out_offset
    return out_offset


def labels_of(data: bytes, lines: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """Return the label of each line. `data` must be UTF-8."""
    out, offsets = np.empty(len(data), np.uint8), np.empty(len(lines) + 1, np.int64)
    size = gather_labels(np.frombuffer(data, np.uint8), lines.reshape(-1), len(lines), out, offsets)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(out[:size])]
    return pa.LargeStringArray.from_buffers(len(lines), *buffers)


def lines_of(data: bytes) -> npt.NDArray[np.int64]:
    """Return an array with a row of FIELD_COUNT numbers for each line of `data` that contains a word."""
    out = np.empty((data.count(b"\n") + 1, FIELD_COUNT), np.int64)
    return out[: read_lines(np.frombuffer(data, np.uint8), len(data), out.reshape(-1))]


MAX_DIGITS = 19
"""Maximum number of digits of a 64-bit integer."""


class Form(StrEnum):
    """The form of a watchlist file: the contents of its lines."""

    ADDRESSES = "address or prefix"
    NUMBERS = "integer"
    LABELS = "prefix and label"
    VENDORS = "MAC prefix and vendor"
    LIFETIMES = "prefix and lifetime"
    HISTORY = "prefix, label and lifetime"

    @property
    def expected(self) -> str:
        """The file that is expected, for messages."""
        return COLUMNS if self in TIMED_FORMS else f"a file with one {self} per line"


TIMED_FORMS = (Form.LIFETIMES, Form.HISTORY)
"""Forms whose rows are true for a time."""


class RuleForm(ABC):
    """The form of a file with rules that a higher layer reads, such as the arcs of an automaton.

    Subclasses are immutable, hashable and picklable, because plans contain them.
    """

    @abstractmethod
    def read(self, text: str) -> tuple[object, ...]:
        """Return the rules of a text. Raises WatchlistError for the first invalid rule."""

    @abstractmethod
    def find_warnings(self, text: str, rules: Sequence[object]) -> tuple[LineWarning, ...]:
        """Return warnings about a valid text. `rules`: those of the text."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The file that is expected, for messages."""


class LineWarning(NamedTuple):
    """A warning about a line of a valid file. Lines are counted from 1."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of one version of a watchlist.

    * `line_count`: number of lines with an entry.
    * `ranges`: ranges of IP addresses, or of MAC addresses in a file of vendors. Their labels are indexes into
      `labels`, or 0 in a list without labels.
    * `numbers`: sorted integers, in a list of integers.
    * `history`: the rows of a file whose rows are true for a time. Their labels are as in `ranges`.
    * `value`: the value of a setting.
    * `rules`: the rules of a file with rules.
    * `warnings`: warnings about these rules.
    """

    line_count: int
    ranges: AddressRanges | None = None
    numbers: Numbers | None = None
    history: History | None = None
    labels: tuple[str, ...] = ()
    value: int | float | bool = 0
    rules: tuple[object, ...] = ()
    warnings: tuple[LineWarning, ...] = ()

    @property
    def bytes(self) -> int:
        """Memory of ranges, numbers and history, in bytes."""
        parts = (self.ranges, self.history)
        number_bytes = 0 if self.numbers is None else self.numbers.nbytes
        return number_bytes + sum(part.bytes for part in parts if part is not None)

    def contains(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the integers that are in the list."""
        assert self.numbers is not None, "a list of integers"
        if len(self.numbers) == 0:
            return np.zeros(numbers.shape, np.bool_)
        indexes = np.searchsorted(self.numbers, numbers)
        return np.asarray(self.numbers[np.minimum(indexes, len(self.numbers) - 1)] == numbers)


def read_contents(data: bytes, form: Form | Setting | RuleForm) -> Contents:
    """Read the text of a watchlist, a setting or rules. Raises WatchlistError for the first invalid line."""
    if isinstance(form, Setting):
        return Contents(1, value=form.read(data))
    if form in TIMED_FORMS:
        return _read_history(data, form)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise WatchlistError(f"line {line}: got bytes that are not UTF-8 text") from None
    if isinstance(form, RuleForm):
        rules = form.read(text)
        return Contents(len(rules), rules=rules, warnings=form.find_warnings(text, rules))
    if form is Form.VENDORS:
        from lowlevel.watch.vendors import read_vendors  # few queries need it

        line_count, vendors, names = read_vendors(text)
        return Contents(
            line_count, AddressRanges(_ipv4_prefixes(lines_of(b""), np.zeros(0, np.int64)), vendors), labels=names
        )
    lines = lines_of(data)
    if form is not Form.LABELS:
        _check_single_words(data, lines, form)
    if form is Form.NUMBERS:
        return Contents(len(lines), numbers=_numbers(data, lines))
    labels, names = _labels(data, lines) if form is Form.LABELS else (np.zeros(len(lines), np.int64), ())
    is_ipv4 = lines[:, CODE] != OTHER
    ipv4 = _ipv4_prefixes(lines[is_ipv4], labels[is_ipv4])
    ipv6 = _ipv6_prefixes(data, lines[~is_ipv4], labels[~is_ipv4])
    ranges = AddressRanges(
        _sort_distinct(ipv4, lines[is_ipv4, LINE], names), _sort_distinct(ipv6, lines[~is_ipv4, LINE], names)
    )
    return Contents(len(lines), ranges, labels=names)


def _read_history(data: bytes, form: Form) -> Contents:
    """Read a file whose rows are true for a time."""
    from lowlevel.watch.timed_files import read_rows  # its patterns take 3 ms, and few queries read such a file

    rows = read_rows(data, has_labels=form is Form.HISTORY)
    for row, text in enumerate(rows.prefixes):
        if not text.isascii() or any(character in text for character in " \t,#\n\r"):
            expected = "an address or a prefix like '10.0.0.0/8'"
            raise WatchlistError(f"{rows.locations.text_of(row)}: got '{text}' as prefix, expected {expected}")
    words = "\n".join(rows.prefixes).encode()
    lines = lines_of(words)
    numbers = np.arange(len(lines))
    lines[:, LINE] = rows.locations.numbers
    is_ipv4 = lines[:, CODE] != OTHER
    ipv4 = _ipv4_prefixes(lines[is_ipv4], numbers[is_ipv4])
    ipv6 = _ipv6_prefixes(words, lines[~is_ipv4], numbers[~is_ipv4], rows.locations.unit)
    ids: dict[str, int] = {}
    labels = np.array([ids.setdefault(label, len(ids)) for label in rows.labels], np.int64)
    return Contents(len(lines), history=History(ipv4, ipv6, rows.starts, rows.ends, labels), labels=tuple(ids))


def _text(data: bytes, line: Numbers, begin: int = BEGIN, end: int = END) -> str:
    return data[int(line[begin]) : int(line[end])].decode()


def _check_single_words(data: bytes, lines: Numbers, form: Form) -> None:
    """Raise WatchlistError if a line has text after its word."""
    longer = np.flatnonzero(lines[:, LABEL_END] > lines[:, END])
    if len(longer):
        line = lines[longer[0]]
        rest = _text(data, line, END, LABEL_END).strip()
        raise WatchlistError(f"line {line[LINE]}: got '{rest}' after the first word, expected one {form} per line")


def _numbers(data: bytes, lines: Numbers) -> Numbers:
    """Return the sorted integers. Raises WatchlistError for a word that is not an integer."""
    numbers = []
    for line in lines:
        text = _text(data, line)
        digits = text[1:] if text[0] in "+-" else text
        is_integer = digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS
        if not is_integer or not -(2**63) <= int(text) < 2**63:
            raise WatchlistError(f"line {line[LINE]}: got '{text}', expected an integer of 64 bits with sign")
        numbers.append(int(text))
    return np.unique(np.array(numbers, np.int64))


def _labels(data: bytes, lines: Numbers) -> tuple[Numbers, tuple[str, ...]]:
    """Return the index of each line's label, and the distinct labels."""
    unlabelled = np.flatnonzero(lines[:, LABEL] >= lines[:, LABEL_END])
    if len(unlabelled):
        line = lines[unlabelled[0]]
        raise WatchlistError(
            f"line {line[LINE]}: got '{_text(data, line)}' without a label, expected '10.0.0.0/8 name'"
        )
    encoded = labels_of(data, lines).dictionary_encode()
    return np.asarray(encoded.indices).astype(np.int64), tuple(encoded.dictionary.to_pylist())


def _ipv4_prefixes(lines: Numbers, labels: Numbers) -> Prefixes:
    codes = lines[:, CODE]
    return Prefixes(32, np.zeros(len(codes), np.uint64), (codes >> 6).astype(np.uint64), codes & 63, labels)


def _ipv6_prefixes(data: bytes, lines: Numbers, labels: Numbers, unit: str = "line") -> Prefixes:
    """Read the words that are not IPv4. Raises WatchlistError for a word that is not IPv6."""
    bounds = lines[:, (LINE, BEGIN, END)].tolist()
    prefixes = [_ipv6_prefix(data[begin:end].decode(), f"{unit} {number}") for number, begin, end in bounds]
    highs, lows, lengths = ([prefix[part] for prefix in prefixes] for part in range(3))
    return Prefixes(128, _halves(highs), _halves(lows), np.array(lengths, np.int64), labels)


def _halves(numbers: list[int]) -> Halves:
    return np.array(numbers, np.uint64)


def _ipv6_prefix(text: str, place: str) -> tuple[int, int, int]:
    """Return the halves and the length of an IPv6 prefix or address."""
    base, slash, digits = text.partition("/")
    version = 6 if ":" in base else 4
    try:
        packed = socket.inet_pton(socket.AF_INET6 if version == 6 else socket.AF_INET, base)
    except (OSError, ValueError):
        raise WatchlistError(f"{place}: got '{text}', expected an address or a prefix like '10.0.0.0/8'") from None
    width = WIDTH[version]
    is_length = digits.isascii() and digits.isdigit() and len(digits) <= 3 and str(int(digits)) == digits
    if slash and not (is_length and int(digits) <= width):
        raise WatchlistError(f"{place}: '{text}' has the length '{digits}', IPv{version} has 0 to {width}")
    length = int(digits) if slash else width
    value = int.from_bytes(packed)
    if value & ((1 << (width - length)) - 1):
        raise WatchlistError(f"{place}: '{text}' has host bits set, expected the network's own address")
    high, low = divmod(value, 2**64)
    return high, low, length


def _sort_distinct(prefixes: Prefixes, lines: Numbers, names: tuple[str, ...]) -> Prefixes:
    """Return the prefixes sorted and without duplicates. Raises WatchlistError for a prefix with two labels."""
    ordered, order = prefixes.sorted()
    repeats = ordered.repeat_indexes()
    differing = repeats[ordered.labels[repeats] != ordered.labels[repeats - 1]]
    if len(differing):
        pair = differing[0] - 1, differing[0]
        first, second = sorted(int(lines[order[index]]) for index in pair)
        labels = " and ".join(f"'{names[ordered.labels[index]]}'" for index in pair)
        raise WatchlistError(f"lines {first} and {second}: one prefix with two labels, {labels}")
    return ordered.without(repeats)
