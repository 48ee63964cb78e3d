"""Templates compiled for the columns that are wanted: what is done with each record, as the steps of the kernels.

What a wanted column is made of is decided here, once for each definition of a template.
"""

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
"""What is done with a field of each type; UNSIGNED where nothing else is said."""

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
"""Columns that every version's header, or the sender, says."""

TIMES: dict[str, str] = {"ts": "end_ts", "start_ts": "start_ts", "end_ts": "end_ts"}
CORRECTED: dict[str, str] = {"packets": "raw_packets", "bytes": "raw_bytes"}
"""Columns that are made of another and of how the record was sampled."""


@dataclass(frozen=True, slots=True)
class Target:
    """One column that fields of a record are written to, from row `row` of the matrix on."""

    row: int
    sources: tuple[tuple[Element, Source], ...]
    limit: int


class Places:
    """Where the wanted columns are in the matrix, and what each is filled from."""

    def __init__(self, columns: Iterable[str]) -> None:
        """Place `columns`, named as in `flow_column`; KeyError for a name that is no column's."""
        self.rows: dict[str, int] = {}
        self.specs: dict[str, ColumnSpec] = {}
        self.targets: list[Target] = []
        self.common = np.full(kernel.COMMON_WORDS, -1, np.int64)
        self.height = values.SCRATCH_ROWS
        self.sampled = False
        self.texts = False
        for name in columns:
            self._place(name)

    def _place(self, name: str) -> None:
        if name in self.rows or name == "link" or name in TIMES:
            return
        if name in CORRECTED:
            self.sampled = True
            self._place(CORRECTED[name])
        elif name == "sampling_rate":
            self.sampled = True
        elif name == "ip_version":
            self._place("srcIP")
            self._place("destIP")
        elif name in COMMON:
            self.common[COMMON[name]] = self._take(name, CORE[name].spec)
        elif name in CORE:
            column = CORE[name]
            sources = tuple((element(source.id), source) for source in column.sources)
            limit = column.spec.bits if column.spec.type in ("integer", "mac") and column.spec.bits < 64 else 0
            self.targets.append(Target(self._take(name, column.spec), sources, limit))
        else:
            found = element_named(name)
            if found is None:
                raise KeyError(name)
            self.texts |= CODES.get(found.type) in TEXT_CODES
            limit = 48 if found.type is DataType.MAC_ADDRESS else 0
            sources = ((found, Source(found.id)),)
            self.targets.append(Target(self._take(name, element_column(found)), sources, limit))

    def _take(self, name: str, spec: ColumnSpec) -> int:
        row = self.rows[name] = self.height
        self.specs[name] = spec
        self.height += 3 if spec.type == "address" else 1
        return row


Step = tuple[int, int, int, int, int, int, int]
"""Code, offset, length, row, field, bytes into the field, limit: as in capture.flows.kernels.records."""

STARTS = {156: values.NANOSECONDS, 154: values.MICROSECONDS, 152: values.MILLISECONDS, 158: values.BEFORE_EXPORT}
ENDS = {157: values.NANOSECONDS, 155: values.MICROSECONDS, 153: values.MILLISECONDS, 159: values.BEFORE_EXPORT}
OBSERVED = {325: values.NANOSECONDS, 324: values.MICROSECONDS, 323: values.MILLISECONDS, 322: values.SECONDS}
"""Elements that say when a flow began, when it ended, and when an event was seen that is both; the best first."""


class Compiler:
    """The steps of one definition, put together one after the other; `flags` are those of its layout."""

    def __init__(self, definition: Definition) -> None:
        """Find the fields of a definition by element; of an element that is there twice the first counts."""
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
        """Whether records have bytes for an element."""
        found = self.fields.get((element, enterprise))
        return found is not None and found[2].length > 0

    def add(
        self, code: int, row: int, element: int, enterprise: int = 0, byte: int | None = None, limit: int = 0
    ) -> None:
        """Do `code` with an element's field, or with one byte of it."""
        number, offset, field = self.fields[element, enterprise]
        length = field.length if byte is None else 1
        self.steps.append((code, offset, length, row, number, byte or 0, limit))

    def lack(self, code: int, row: int) -> None:
        """Fill a row without a field."""
        self.steps.append((code, 0, 0, row, -1, 0, 0))

    def first(self, row: int, codes: dict[int, int]) -> bool:
        """Fill a row of times from the first element that there is."""
        for number, code in codes.items():
            if self.has(number):
                self.add(code, row, number)
                return True
        return False

    def times(self) -> None:
        """Start, end and duration. IPFIX has no uptime in its header; only an element says when it counts from."""
        late = self.definition.version == IPFIX
        uptime = values.UPTIME_SINCE if late else values.UPTIME
        if late and self.has(160):
            self.add(values.INIT_MS, values.SINCE, 160)
        seconds = {150: values.SECONDS, 151: values.SECONDS}
        since = {22: uptime, 21: uptime}
        after = seconds | since if late else since | seconds
        start = self.first(values.START, STARTS | {each: after[each] for each in after if each in (22, 150)})
        end = self.first(values.END, ENDS | {each: after[each] for each in after if each in (21, 151)})
        if not end:
            end = self.first(values.END, OBSERVED)
            if end and not start:
                start = self.first(values.START, OBSERVED)
        for there, row in ((start, values.START), (end, values.END)):
            if not there:
                self.lack(values.ABSENT, row)
        if (
            start
            and end
            and self.definition.fixed
            and all(step[0] == values.UPTIME and step[2] <= 8 for step in self.steps)
        ):
            return  # nothing is missing, whatever the bytes are
        self.flags |= NEEDS_TIMES
        if not self.first(values.LASTS, {162: values.LASTS_US, 161: values.LASTS_MS}):
            self.lack(values.ABSENT, values.LASTS)

    def sampling(self) -> None:
        """How a record says it was sampled; what comes later counts more."""
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

    def target(self, target: Target) -> None:
        """Fill one column from the first of its sources that there is, an address from the first of each version."""
        codes = [CODES.get(each.type, values.UNSIGNED) for each, _ in target.sources]
        found = [
            (code, each, source)
            for code, (each, source) in zip(codes, target.sources, strict=True)
            if self.has(each.id, each.enterprise) and (source.byte is None or self._two_bytes(each))
        ]
        if not found:
            self._lack(target, codes[0])
            return
        code, each, source = found[0]
        self.add(code, target.row, each.id, each.enterprise, source.byte, target.limit)
        if code == values.ADDRESS4:
            for other, each, _ in found[1:]:
                if other == values.ADDRESS6:
                    self.add(values.ADDRESS6_ELSE, target.row, each.id, each.enterprise)
                    break

    def _lack(self, target: Target, code: int) -> None:
        """Fill a column that no record of this definition has; a text of fixed length 0 is an empty one."""
        each, _ = target.sources[0]
        if code in TEXT_CODES and (each.id, each.enterprise) in self.fields:
            self.add(code, target.row, each.id, each.enterprise)
        else:
            self.lack(values.ABSENT_ADDRESS if code in ADDRESS_CODES else values.ABSENT, target.row)

    def _two_bytes(self, each: Element) -> bool:
        return self.fields[each.id, each.enterprise][2].length == 2


def compile_steps(definition: Definition, places: Places) -> tuple[list[Step], int]:
    """Compile what is done with each flow record of a definition: the steps and a layout's flags."""
    compiler = Compiler(definition)
    compiler.times()
    if places.sampled:
        compiler.sampling()
    for target in places.targets:
        compiler.target(target)
    return compiler.steps, compiler.flags


_BOTH = (
    (8, 4), (12, 4), (15, 4), (10, 2), (14, 2), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (0, 1), (6, 1),
    (4, 1), (5, 1), (16, 2), (17, 2), (9, 1), (13, 1), (0, 2),
)  # fmt: skip

NETFLOW_V5 = Definition.of(5, [Field(*each) for each in _BOTH])
"""A record of NetFlow v5, as a template would say it; element 0 is padding."""

NETFLOW_V7 = Definition.of(7, [Field(*each) for each in (*_BOTH, (43, 4))])
"""A record of NetFlow v7, which adds the address of the router that was gone around."""


class Words:
    """Rows of numbers in one flat array that grows."""

    def __init__(self, width: int) -> None:
        """Begin without rows of `width` numbers."""
        self.width = width
        self.rows = 0
        self.flat: npt.NDArray[np.int64] = np.zeros(64 * width, np.int64)

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows; arrays handed out before may be another one afterwards."""
        need = (self.rows + len(rows)) * self.width
        if need > len(self.flat):
            self.flat = np.concatenate([self.flat, np.zeros(need, np.int64)])
        if rows:
            self.flat[self.rows * self.width : need] = np.array(rows, np.int64).reshape(-1)
        self.rows += len(rows)


class Layouts:
    """Compiled definitions as the arrays that kernels take. Equal definitions are compiled once."""

    def __init__(self, places: Places) -> None:
        """Begin with the layouts of the versions that have no templates."""
        self.places = places
        self.clear()

    def clear(self) -> None:
        """Forget all layouts but those of NetFlow v5 and v7; numbers given before mean nothing any more."""
        self.numbers: dict[Definition, int] = {}
        self.words = Words(kernel.LAYOUT_WORDS)
        self.steps = Words(STEP_WORDS)
        self.fields = Words(1)
        for number, definition in ((kernel.LAYOUT_V5, NETFLOW_V5), (kernel.LAYOUT_V7, NETFLOW_V7)):
            assert self.number(definition) == number

    def __len__(self) -> int:
        return self.words.rows

    def number(self, definition: Definition) -> int:
        """Return the number of a definition of flow records, compiling it where that is new."""
        known = self.numbers.get(definition)
        if known is not None:
            return known
        steps, flags = compile_steps(definition, self.places)
        lengths = [] if definition.fixed else [(each.length,) for each in definition.fields]
        first, field = self.steps.rows, self.fields.rows
        self.words.add([(definition.shortest, definition.fixed, first, first + len(steps), field, len(lengths), flags)])
        self.steps.add(steps)
        self.fields.add(lengths)
        number = self.numbers[definition] = self.words.rows - 1
        return number
