"""Templates compiled for the columns that are wanted: what is done with each record, as the steps of the kernels.

What a wanted column is made of is decided here, once for each definition of a template.
"""

from __future__ import annotations

from capture.flows.elements import ALIASES, Element
from capture.flows.kernels import values
from capture.flows.kernels.records import SAMPLED, TIMES_OPEN
from capture.flows.places import ADDRESS_CODES, CODES, TEXT_CODES, Places, Target
from capture.flows.sampling import INTERFACE, SAMPLER, SELECTOR
from capture.flows.templates import IPFIX, V9, Definition, Field

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
        self.flags |= TIMES_OPEN
        if not self.first(values.LASTS, {162: values.LASTS_US, 161: values.LASTS_MS}):
            self.lack(values.ABSENT, values.LASTS)

    def sampling(self) -> None:
        """How a record says it was sampled; what comes later counts more."""
        self.flags |= SAMPLED
        for element, kind in ((10, INTERFACE), (48, SAMPLER), (302, SELECTOR)):
            if self.has(element):
                self.add(values.RATE_KEY, values.RATE_NUM, element, limit=kind)
        for element in (50, 34):
            if self.has(element):
                self.add(values.RATE, values.RATE_NUM, element)
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
