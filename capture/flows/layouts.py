"""Compilation of templates into kernel steps for the requested columns, once per definition of a template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.flows.columns import CORE, Source, element_column
from capture.flows.elements import ALIASES, DataType, Element, element, element_named
from capture.flows.kernels import datagrams as kernel
from capture.flows.kernels import values
from capture.flows.kernels.records import NEEDS_TIMES, SAMPLED, STEP_WORDS
from capture.flows.sampling import INTERFACE, SAMPLER, SELECTOR
from capture.flows.templates import IPFIX, V9, Definition, Field
from capture.packets.columns import ColumnSpec

CODES: dict[DataType, int] = {
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
"""Step code by data type; UNSIGNED for all others."""

ADDRESS_CODES = (values.ADDRESS4, values.ADDRESS6)
TEXT_CODES = (values.TEXT, values.OCTETS)

COMMON: dict[str, int] = {
    "exporter": kernel.COMMON_EXPORTER,
    "exporter_port": kernel.COMMON_PORT,
    "observation_domain": kernel.COMMON_DOMAIN,
    "version": kernel.COMMON_VERSION,
    "export_ts": kernel.COMMON_EXPORT,
    "arrival_ts": kernel.COMMON_ARRIVAL,
}
"""Columns that come from the header or the sender, in every version."""

TIMES: dict[str, str] = {"ts": "end_ts", "start_ts": "start_ts", "end_ts": "end_ts"}
CORRECTED: dict[str, str] = {"packets": "raw_packets", "bytes": "raw_bytes"}
"""Columns computed from another column and the sampling rate."""


@dataclass(frozen=True, slots=True)
class Target:
    """A column into which fields of a record are decoded. `row`: its first row of the matrix."""

    row: int
    sources: tuple[tuple[Element, Source], ...]
    limit: int


class ColumnRows:
    """Matrix rows and sources of the requested columns."""

    def __init__(self, columns: Iterable[str]) -> None:
        """Assign matrix rows to `columns`, named as in `flow_column`. Raises KeyError for an unknown column."""
        self.rows: dict[str, int] = {}
        self.specs: dict[str, ColumnSpec] = {}
        self.targets: list[Target] = []
        self.common = np.full(kernel.COMMON_WORDS, -1, np.int64)
        self.height = values.SCRATCH_ROWS
        self.sampled = False
        self.texts = False
        for name in columns:
            self._add_column(name)

    def _add_column(self, name: str) -> None:
        if name in self.rows or name == "link" or name in TIMES:
            return
        if name in CORRECTED:
            self.sampled = True
            self._add_column(CORRECTED[name])
        elif name == "sampling_rate":
            self.sampled = True
        elif name == "ip_version":
            self._add_column("srcIP")
            self._add_column("destIP")
        elif name in COMMON:
            self.common[COMMON[name]] = self._allocate_rows(name, CORE[name].spec)
        elif name in CORE:
            column = CORE[name]
            sources = tuple((element(source.id), source) for source in column.sources)
            limit = column.spec.bits if column.spec.type in ("integer", "mac") and column.spec.bits < 64 else 0
            self.targets.append(Target(self._allocate_rows(name, column.spec), sources, limit))
        else:
            unregistered = element_named(name)
            if unregistered is None:
                raise KeyError(name)
            self.texts |= CODES.get(unregistered.type) in TEXT_CODES
            limit = 48 if unregistered.type is DataType.MAC_ADDRESS else 0
            sources = ((unregistered, Source(unregistered.id)),)
            self.targets.append(Target(self._allocate_rows(name, element_column(unregistered)), sources, limit))

    def _allocate_rows(self, name: str, spec: ColumnSpec) -> int:
        row = self.rows[name] = self.height
        self.specs[name] = spec
        self.height += 3 if spec.type == "address" else 1
        return row


Step = tuple[int, int, int, int, int, int, int]
"""Code, offset, length, row, field, offset inside the field, limit: see capture.flows.kernels.records."""

STARTS = {156: values.NANOSECONDS, 154: values.MICROSECONDS, 152: values.MILLISECONDS, 158: values.BEFORE_EXPORT}
ENDS = {157: values.NANOSECONDS, 155: values.MICROSECONDS, 153: values.MILLISECONDS, 159: values.BEFORE_EXPORT}
OBSERVED = {325: values.NANOSECONDS, 324: values.MICROSECONDS, 323: values.MILLISECONDS, 322: values.SECONDS}
"""Time elements in order of preference: start of a flow, end of a flow, and observation time (both start and end)."""


class Compiler:
    """Collect the steps and layout `flags` of one definition."""

    def __init__(self, definition: Definition) -> None:
        """Index the fields of a definition by element. If an element is repeated, its first field is used."""
        self.definition = definition
        self.steps: list[Step] = []
        self.flags = 0
        self.fields: dict[tuple[int, int], tuple[int, int, Field]] = {}
        offset = 0
        for number, field in enumerate(definition.fields):
            known = ALIASES.get(field.id, field.id) if definition.version == V9 else field.id
            self.fields.setdefault((known, field.enterprise), (number, offset, field))
            offset += field.length

    def has(self, element: int, enterprise: int = 0) -> bool:
        """Return whether records have bytes for an element."""
        indexed = self.fields.get((element, enterprise))
        return indexed is not None and indexed[2].length > 0

    def add(
        self, code: int, row: int, element: int, enterprise: int = 0, byte: int | None = None, limit: int = 0
    ) -> None:
        """Add a step for an element's field, or for one byte of it."""
        number, offset, field = self.fields[element, enterprise]
        length = field.length if byte is None else 1
        self.steps.append((code, offset, length, row, number, byte or 0, limit))

    def add_missing(self, code: int, row: int) -> None:
        """Add a step that writes missing values to a row."""
        self.steps.append((code, 0, 0, row, -1, 0, 0))

    def add_first(self, row: int, codes: dict[int, int]) -> bool:
        """Add the step of a row of times from the first existing element. Return whether one exists."""
        for number, code in codes.items():
            if self.has(number):
                self.add(code, row, number)
                return True
        return False

    def add_times(self) -> None:
        """Add the steps of start, end and duration. IPFIX headers have no uptime; element 160 defines its origin."""
        is_ipfix = self.definition.version == IPFIX
        uptime = values.UPTIME_SINCE if is_ipfix else values.UPTIME
        if is_ipfix and self.has(160):
            self.add(values.INIT_MS, values.SINCE, 160)
        seconds = {150: values.SECONDS, 151: values.SECONDS}
        since = {22: uptime, 21: uptime}
        after = seconds | since if is_ipfix else since | seconds
        start = self.add_first(
            values.START, STARTS | {number_: after[number_] for number_ in after if number_ in (22, 150)}
        )
        end = self.add_first(values.END, ENDS | {number_: after[number_] for number_ in after if number_ in (21, 151)})
        if not end:
            end = self.add_first(values.END, OBSERVED)
            if end and not start:
                start = self.add_first(values.START, OBSERVED)
        for exists, row in ((start, values.START), (end, values.END)):
            if not exists:
                self.add_missing(values.ABSENT, row)
        if (
            start
            and end
            and self.definition.fixed
            and all(step[0] == values.UPTIME and step[2] <= 8 for step in self.steps)
        ):
            return  # start and end always exist
        self.flags |= NEEDS_TIMES
        if not self.add_first(values.DURATION, {162: values.DURATION_US, 161: values.DURATION_MS}):
            self.add_missing(values.ABSENT, values.DURATION)

    def add_sampling(self) -> None:
        """Add the steps of a record's sampling rate. Later steps override earlier ones."""
        self.flags |= SAMPLED
        for number, kind in ((10, INTERFACE), (48, SAMPLER), (302, SELECTOR)):
            if self.has(number):
                self.add(values.RATE_KEY, values.RATE_NUM, number, limit=kind)
        for number in (50, 34):
            if self.has(number):
                self.add(values.RATE, values.RATE_NUM, number)
        for pair in (
            ((305, values.RATE_PART), (306, values.RATE_SPACE)),
            ((309, values.RATE_PART), (310, values.RATE_POPULATION)),
        ):
            if all(self.has(element) for element, _ in pair):
                for element, code in pair:
                    self.add(code, values.RATE_NUM, element)

    def add_target(self, target: Target) -> None:
        """Add the steps of a column from its first existing source, of an address from one source of each version."""
        codes = [CODES.get(element_.type, values.UNSIGNED) for element_, _ in target.sources]
        existing = [
            (code, element_, source)
            for code, (element_, source) in zip(codes, target.sources, strict=True)
            if self.has(element_.id, element_.enterprise) and (source.byte is None or self._two_bytes(element_))
        ]
        if not existing:
            self._add_missing_column(target, codes[0])
            return
        code, element_, source = existing[0]
        self.add(code, target.row, element_.id, element_.enterprise, source.byte, target.limit)
        if code == values.ADDRESS4:
            for other, element_, _ in existing[1:]:
                if other == values.ADDRESS6:
                    self.add(values.ADDRESS6_ELSE, target.row, element_.id, element_.enterprise)
                    break

    def _add_missing_column(self, target: Target, code: int) -> None:
        """Add the step of a column that the definition lacks. A text field of fixed length 0 is an empty text."""
        element_, _ = target.sources[0]
        if code in TEXT_CODES and (element_.id, element_.enterprise) in self.fields:
            self.add(code, target.row, element_.id, element_.enterprise)
        else:
            self.add_missing(values.ABSENT_ADDRESS if code in ADDRESS_CODES else values.ABSENT, target.row)

    def _two_bytes(self, element_: Element) -> bool:
        return self.fields[element_.id, element_.enterprise][2].length == 2


def compile_steps(definition: Definition, column_rows: ColumnRows) -> tuple[list[Step], int]:
    """Compile the steps for flow records of a definition. Return the steps and the flags of the layout."""
    compiler = Compiler(definition)
    compiler.add_times()
    if column_rows.sampled:
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
"""A NetFlow v7 record as a template: v5 and the address of the bypassed router."""


class Words:
    """Rows of words in one flat array that grows."""

    def __init__(self, width: int) -> None:
        """Begin without rows; a row has `width` words."""
        self.width = width
        self.rows = 0
        self.flat: npt.NDArray[np.int64] = np.zeros(64 * width, np.int64)

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows. `flat` may become another array."""
        need = (self.rows + len(rows)) * self.width
        if need > len(self.flat):
            self.flat = np.concatenate([self.flat, np.zeros(need, np.int64)])
        if rows:
            self.flat[self.rows * self.width : need] = np.array(rows, np.int64).reshape(-1)
        self.rows += len(rows)


class Layouts:
    """Compiled definitions as arrays for kernels. Equal definitions are compiled once."""

    def __init__(self, column_rows: ColumnRows) -> None:
        """Begin with the layouts of NetFlow v5 and v7, which have no templates."""
        self.column_rows = column_rows
        self.clear()

    def clear(self) -> None:
        """Remove all layouts except NetFlow v5 and v7. Earlier layout numbers become invalid."""
        self.numbers: dict[Definition, int] = {}
        self.words = Words(kernel.LAYOUT_WORDS)
        self.steps = Words(STEP_WORDS)
        self.fields = Words(1)
        for number, definition in ((kernel.LAYOUT_V5, NETFLOW_V5), (kernel.LAYOUT_V7, NETFLOW_V7)):
            assert self.number(definition) == number

    def __len__(self) -> int:
        return self.words.rows

    def number(self, definition: Definition) -> int:
        """Return the layout number of a definition of flow records; compile it if it is new."""
        known = self.numbers.get(definition)
        if known is not None:
            return known
        steps, flags = compile_steps(definition, self.column_rows)
        lengths = [] if definition.fixed else [(field_.length,) for field_ in definition.fields]
        first, field = self.steps.rows, self.fields.rows
        self.words.add([(definition.shortest, definition.fixed, first, first + len(steps), field, len(lengths), flags)])
        self.steps.add(steps)
        self.fields.add(lengths)
        number = self.numbers[definition] = self.words.rows - 1
        return number
