"""Compile the definition of a template into decoding steps for the requested columns.

A step specifies the bytes of a record that the kernel decodes, the code of the conversion, and the row of the column
matrix that receives the values. Equal definitions are compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from capture.flows.columns import CORE_COLUMNS, Source, element_column
from capture.flows.elements import ALIASES, DataType, Element, element, element_named
from capture.flows.kernels import datagrams as kernel
from capture.flows.kernels import values
from capture.flows.kernels.records import NEEDS_RATES, NEEDS_TIMES, STEP_WORDS
from capture.flows.sampling import INTERFACE, SAMPLER, SELECTOR
from capture.flows.templates import IPFIX, V9, Definition, Field
from capture.lazy_dataclasses import dataclass
from capture.packets.columns import ColumnSpec

STEP_CODES: dict[DataType, int] = {
    DataType.SIGNED8: values.SIGNED,
    DataType.SIGNED16: values.SIGNED,
    DataType.SIGNED32: values.SIGNED,
    DataType.SIGNED64: values.SIGNED,
    DataType.FLOAT32: values.FLOAT,
    DataType.FLOAT64: values.FLOAT,
    DataType.BOOLEAN: values.BOOLEAN,
    DataType.STRING: values.TEXT,
    DataType.OCTET_ARRAY: values.OCTETS,
    DataType.UNSIGNED256: values.OCTETS,
    DataType.BASIC_LIST: values.OCTETS,
    DataType.SUB_TEMPLATE_LIST: values.OCTETS,
    DataType.SUB_TEMPLATE_MULTI_LIST: values.OCTETS,
    DataType.SECONDS: values.SECONDS,
    DataType.MILLISECONDS: values.MILLISECONDS,
    DataType.MICROSECONDS: values.MICROSECONDS,
    DataType.NANOSECONDS: values.NANOSECONDS,
    DataType.IPV4_ADDRESS: values.ADDRESS4,
    DataType.IPV6_ADDRESS: values.ADDRESS6,
}
"""Codes of steps by the data type of the element. UNSIGNED is used for types that are not listed."""

ADDRESS_CODES = (values.ADDRESS4, values.ADDRESS6)
TEXT_CODES = (values.TEXT, values.OCTETS)

HEADER_COLUMNS: dict[str, int] = {
    "exporter": kernel.COMMON_EXPORTER,
    "exporter_port": kernel.COMMON_PORT,
    "observation_domain": kernel.COMMON_DOMAIN,
    "version": kernel.COMMON_VERSION,
    "export_ts": kernel.COMMON_EXPORT,
    "arrival_ts": kernel.COMMON_ARRIVAL,
}
"""The columns whose values are in the header of a message or in the address of its sender: for each, the index in the
array `common` of the kernel."""

TIME_SOURCES: dict[str, str] = {"ts": "end_ts", "start_ts": "start_ts", "end_ts": "end_ts"}
"""Time columns, and the computed time that each contains."""

UNSCALED_COLUMNS: dict[str, str] = {"packets": "raw_packets", "bytes": "raw_bytes"}
"""Columns that are multiplied by the sampling rate, each with the column that contains the value before this."""


@dataclass(frozen=True, slots=True)
class Target:
    """A column into which a field of a record is decoded.

    `row`: the first row of the column in the matrix. `sources`: the elements that can provide the value, in order of
    preference. `max_bits`: maximum number of bits of a value, 0 for no maximum. Larger values become NULL.
    """

    row: int
    sources: tuple[tuple[Element, Source], ...]
    max_bits: int


class ColumnRows:
    """The matrix rows and the sources of the requested columns.

    `rows`: first matrix row by column. `targets`: the columns whose values are in fields. `header_rows`: the rows of
    HEADER_COLUMNS, -1 if not requested. `height`: the number of matrix rows. `needs_sampling_rate`, `has_texts`:
    whether a column depends on the sampling rate or contains texts.
    """

    def __init__(self, columns: Iterable[str]) -> None:
        """Assign matrix rows to `columns`, named as in `flow_column`. Raises KeyError for an unknown column."""
        self.rows: dict[str, int] = {}
        self.specs: dict[str, ColumnSpec] = {}
        self.targets: list[Target] = []
        self.header_rows = np.full(kernel.COMMON_WORDS, -1, np.int64)
        self.height = values.SCRATCH_ROWS
        self.needs_sampling_rate = False
        self.has_texts = False
        for name in columns:
            self._add_column(name)

    def _add_column(self, name: str) -> None:
        if name in self.rows or name == "link" or name in TIME_SOURCES:
            return
        if name in UNSCALED_COLUMNS:
            self.needs_sampling_rate = True
            self._add_column(UNSCALED_COLUMNS[name])
        elif name == "sampling_rate":
            self.needs_sampling_rate = True
        elif name == "ip_version":
            self._add_column("srcIP")
            self._add_column("destIP")
        elif name in HEADER_COLUMNS:
            self.header_rows[HEADER_COLUMNS[name]] = self._allocate_rows(name, CORE_COLUMNS[name].spec)
        elif name in CORE_COLUMNS:
            column = CORE_COLUMNS[name]
            sources = tuple((element(source.id), source) for source in column.sources)
            max_bits = column.spec.bits if column.spec.type in ("integer", "mac") and column.spec.bits < 64 else 0
            self.targets.append(Target(self._allocate_rows(name, column.spec), sources, max_bits))
        else:
            any_element = element_named(name)
            if any_element is None:
                raise KeyError(name)
            self.has_texts |= STEP_CODES.get(any_element.type) in TEXT_CODES
            max_bits = 48 if any_element.type is DataType.MAC_ADDRESS else 0
            sources = ((any_element, Source(any_element.id)),)
            self.targets.append(Target(self._allocate_rows(name, element_column(any_element)), sources, max_bits))

    def _allocate_rows(self, name: str, spec: ColumnSpec) -> int:
        row = self.rows[name] = self.height
        self.specs[name] = spec
        self.height += 3 if spec.type == "address" else 1
        return row


Step = tuple[int, int, int, int, int, int, int]
"""Code, offset, length, row, field, offset inside the field, maximum bits: see `capture.flows.kernels.records`."""

START_CODES = {156: values.NANOSECONDS, 154: values.MICROSECONDS, 152: values.MILLISECONDS, 158: values.BEFORE_EXPORT}
END_CODES = {157: values.NANOSECONDS, 155: values.MICROSECONDS, 153: values.MILLISECONDS, 159: values.BEFORE_EXPORT}
OBSERVATION_CODES = {325: values.NANOSECONDS, 324: values.MICROSECONDS, 323: values.MILLISECONDS, 322: values.SECONDS}
"""Codes of steps by element number, in order of preference, for the start of a flow, the end of a flow, and the time of
an observation, which is both its start and its end."""


class StepCompiler:
    """Collects the `steps` of one definition and the `flags` of its layout."""

    def __init__(self, definition: Definition) -> None:
        """Index the fields of a definition by element. If an element is repeated, its first field is used."""
        self.definition = definition
        self.steps: list[Step] = []
        self.flags = 0
        self.fields: dict[tuple[int, int], tuple[int, int, Field]] = {}
        offset = 0
        for field_index, field in enumerate(definition.fields):
            element_id = ALIASES.get(field.id, field.id) if definition.version == V9 else field.id
            self.fields.setdefault((element_id, field.enterprise), (field_index, offset, field))
            offset += field.length

    def has(self, element: int, enterprise: int = 0) -> bool:
        """Return whether records contain bytes of an element."""
        indexed = self.fields.get((element, enterprise))
        return indexed is not None and indexed[2].length > 0

    def add(
        self, code: int, row: int, element: int, enterprise: int = 0, byte: int | None = None, argument: int = 0
    ) -> None:
        """Add the step that decodes an element's field, or one byte of the field. `argument`: see `Step`."""
        field_index, offset, field = self.fields[element, enterprise]
        length = field.length if byte is None else 1
        self.steps.append((code, offset, length, row, field_index, byte or 0, argument))

    def add_missing(self, code: int, row: int) -> None:
        """Add a step that writes missing values to a row."""
        self.steps.append((code, 0, 0, row, -1, 0, 0))

    def add_first_present(self, row: int, codes: dict[int, int]) -> bool:
        """Add the step for the first element of `codes` that records contain. Return False if there is none."""
        for element_id, code in codes.items():
            if self.has(element_id):
                self.add(code, row, element_id)
                return True
        return False

    def add_times(self) -> None:
        """Add the steps for start, end and duration.

        Times since the start of the exporter need the uptime in the header. IPFIX headers do not contain the uptime.
        Instead, element 160 of the record contains the time of the start.
        """
        is_ipfix = self.definition.version == IPFIX
        uptime = values.UPTIME_SINCE if is_ipfix else values.UPTIME
        if is_ipfix and self.has(160):
            self.add(values.INIT_MS, values.EXPORTER_START_ROW, 160)
        in_seconds = {150: values.SECONDS, 151: values.SECONDS}
        in_uptime = {22: uptime, 21: uptime}
        fallback = in_seconds | in_uptime if is_ipfix else in_uptime | in_seconds  # after START_CODES and END_CODES
        start = self.add_first_present(
            values.START_ROW,
            START_CODES | {element_id: code for element_id, code in fallback.items() if element_id in (22, 150)},
        )
        end = self.add_first_present(
            values.END_ROW,
            END_CODES | {element_id: code for element_id, code in fallback.items() if element_id in (21, 151)},
        )
        if not end:
            end = self.add_first_present(values.END_ROW, OBSERVATION_CODES)
            if end and not start:
                start = self.add_first_present(values.START_ROW, OBSERVATION_CODES)
        for exists, row in ((start, values.START_ROW), (end, values.END_ROW)):
            if not exists:
                self.add_missing(values.ABSENT, row)
        if (
            start
            and end
            and self.definition.has_fixed_length
            and all(step[0] == values.UPTIME and step[2] <= 8 for step in self.steps)
        ):
            return  # every record has a start and an end, so it needs no duration
        self.flags |= NEEDS_TIMES
        if not self.add_first_present(values.DURATION_ROW, {162: values.DURATION_US, 161: values.DURATION_MS}):
            self.add_missing(values.ABSENT, values.DURATION_ROW)

    def add_sampling(self) -> None:
        """Add the steps for the sampling rate of a record. Later steps override earlier ones."""
        self.flags |= NEEDS_RATES
        for element_id, kind in ((10, INTERFACE), (48, SAMPLER), (302, SELECTOR)):
            if self.has(element_id):
                self.add(values.RATE_KEY, values.RATE_NUMERATOR_ROW, element_id, argument=kind)
        for element_id in (50, 34):
            if self.has(element_id):
                self.add(values.RATE, values.RATE_NUMERATOR_ROW, element_id)
        for pair in (
            ((305, values.RATE_PART), (306, values.RATE_SPACE)),
            ((309, values.RATE_PART), (310, values.RATE_POPULATION)),
        ):
            if all(self.has(element) for element, _ in pair):
                for element, code in pair:
                    self.add(code, values.RATE_NUMERATOR_ROW, element)

    def add_target(self, target: Target) -> None:
        """Add the step for a column from the first of its sources that records contain.

        If this source is an IPv4 address, IPv6 is a second source: for records whose IPv4 address is zero.
        """
        codes = [STEP_CODES.get(element_.type, values.UNSIGNED) for element_, _ in target.sources]
        existing = [
            (code, element_, source)
            for code, (element_, source) in zip(codes, target.sources, strict=True)
            if self.has(element_.id, element_.enterprise) and (source.byte is None or self._two_bytes(element_))
        ]
        if not existing:
            self._add_missing_column(target, codes[0])
            return
        code, element_, source = existing[0]
        self.add(code, target.row, element_.id, element_.enterprise, source.byte, target.max_bits)
        if code == values.ADDRESS4:
            for other_code, element_, _ in existing[1:]:
                if other_code == values.ADDRESS6:
                    self.add(values.ADDRESS6_ELSE, target.row, element_.id, element_.enterprise)
                    break

    def _add_missing_column(self, target: Target, code: int) -> None:
        """Add the step for a column without a field. A text field of length 0 becomes an empty text, not NULL."""
        element_, _ = target.sources[0]
        if code in TEXT_CODES and (element_.id, element_.enterprise) in self.fields:
            self.add(code, target.row, element_.id, element_.enterprise)
        else:
            self.add_missing(values.ABSENT_ADDRESS if code in ADDRESS_CODES else values.ABSENT, target.row)

    def _two_bytes(self, element_: Element) -> bool:
        return self.fields[element_.id, element_.enterprise][2].length == 2


def compile_steps(definition: Definition, column_rows: ColumnRows) -> tuple[list[Step], int]:
    """Return the steps for flow records of a definition, and the flags of the layout."""
    compiler = StepCompiler(definition)
    compiler.add_times()
    if column_rows.needs_sampling_rate:
        compiler.add_sampling()
    for target in column_rows.targets:
        compiler.add_target(target)
    return compiler.steps, compiler.flags


_V5_FIELDS = (
    (8, 4), (12, 4), (15, 4), (10, 2), (14, 2), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (0, 1), (6, 1),
    (4, 1), (5, 1), (16, 2), (17, 2), (9, 1), (13, 1), (0, 2),
)  # fmt: skip

NETFLOW_V5 = Definition.of(5, [Field(*specifier) for specifier in _V5_FIELDS])
"""A NetFlow v5 record as a template; element 0 is padding."""

NETFLOW_V7 = Definition.of(7, [Field(*specifier) for specifier in (*_V5_FIELDS, (43, 4))])
"""A NetFlow v7 record as a template: the fields of v5, and the address of the bypassed router."""


class GrowingTable:
    """A growing table of integers in one flat array, as kernels read it."""

    def __init__(self, width: int) -> None:
        """Begin without rows. A row has `width` integers."""
        self.width = width
        self.rows = 0
        self.flat: npt.NDArray[np.int64] = np.zeros(64 * width, np.int64)

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows. `flat` may become another array."""
        needed_words = (self.rows + len(rows)) * self.width
        if needed_words > len(self.flat):
            self.flat = np.concatenate([self.flat, np.zeros(needed_words, np.int64)])
        if rows:
            self.flat[self.rows * self.width : needed_words] = np.array(rows, np.int64).reshape(-1)
        self.rows += len(rows)


class Layouts:
    """Compiled definitions as arrays for kernels. Equal definitions are compiled once."""

    def __init__(self, column_rows: ColumnRows) -> None:
        """Begin with the layouts of NetFlow v5 and v7, which have no templates."""
        self.column_rows = column_rows
        self.clear()

    def clear(self) -> None:
        """Remove all layouts except the layouts of NetFlow v5 and v7. Other layout numbers become invalid."""
        self.numbers: dict[Definition, int] = {}
        self.words = GrowingTable(kernel.LAYOUT_WORDS)
        self.steps = GrowingTable(STEP_WORDS)
        self.fields = GrowingTable(1)
        for number, definition in ((kernel.LAYOUT_V5, NETFLOW_V5), (kernel.LAYOUT_V7, NETFLOW_V7)):
            assert self.number(definition) == number

    def __len__(self) -> int:
        return self.words.rows

    def number(self, definition: Definition) -> int:
        """Return the layout number of a definition of flow records. Compile the definition if it is new."""
        if (existing := self.numbers.get(definition)) is not None:
            return existing
        steps, flags = compile_steps(definition, self.column_rows)
        lengths = [] if definition.has_fixed_length else [(field_.length,) for field_ in definition.fields]
        first, field = self.steps.rows, self.fields.rows
        self.words.add(
            [
                (
                    definition.min_record_bytes,
                    definition.has_fixed_length,
                    first,
                    first + len(steps),
                    field,
                    len(lengths),
                    flags,
                )
            ]
        )
        self.steps.add(steps)
        self.fields.add(lengths)
        number = self.numbers[definition] = self.words.rows - 1
        return number
