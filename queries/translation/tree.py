"""The conditions of rules: comparisons of fields with values, combined by AND, OR and NOT.

Each part has its position in the text of the rule, for error messages.
"""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FieldName:
    """The name of a field, such as `source.ip`."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, text, truth value or null."""

    value: Value
    position: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two operands and `+`, `-`, `*`, `/` or `%`."""

    operator: str
    left: Operand
    right: Operand
    position: int


Operand = FieldName | Constant | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and `=`, `<>`, `<`, `<=`, `>` or `>=`."""

    operator: str
    left: Operand
    right: Operand
    position: int


@dataclass(frozen=True, slots=True)
class Membership:
    """A field that has one of several values. `kind`: `equal`, `like` (with `*` and `?`), or `cidr`."""

    field: FieldName
    kind: str
    values: tuple[Constant, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Negation:
    """NOT. A condition that is NULL counts as false, so its negation is true."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions joined by `AND` or `OR`."""

    operator: str
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition that is always true, or always false."""

    value: bool


Condition = Comparison | Membership | Negation | Junction | Truth
