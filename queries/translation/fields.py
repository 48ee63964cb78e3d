"""Translate the names of fields in rules to columns, and conditions over them to SQL conditions.

Fields may have names of ECS (Elastic's schema), of Zeek's connection log, or of Wiretide's columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.types import Type
from lowlevel.kinds import row_kind_of
from queries.text.errors import QueryError
from queries.text.literals import AddressError, address_text, parse_address, parse_prefix, prefix_text
from queries.translation.tree import (
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    FieldName,
    Junction,
    Membership,
    Negation,
    Operand,
    Truth,
)

_FIELDS = {
    "@timestamp": "ts", "ts": "ts", "timestamp": "ts",
    "source.ip": "srcIP", "source.address": "srcIP", "client.ip": "srcIP", "id.orig_h": "srcIP", "src_ip": "srcIP",
    "destination.ip": "destIP", "destination.address": "destIP", "server.ip": "destIP", "id.resp_h": "destIP",
    "dst_ip": "destIP",
    "source.port": "srcPort", "client.port": "srcPort", "id.orig_p": "srcPort", "src_port": "srcPort",
    "destination.port": "destPort", "server.port": "destPort", "id.resp_p": "destPort", "dst_port": "destPort",
    "network.transport": "protocol", "network.iana_number": "protocol", "proto": "protocol",
    "network.type": "ip_version",
    "source.mac": "srcMAC", "destination.mac": "destMAC",
    "network.vlan.id": "vlan",
    "network.bytes": "len",
    "destination.as.number": "destAS", "source.as.number": "srcAS",
    "observer.ip": "exporter",
}  # fmt: skip
_OF_KIND = {
    "flows": {
        "network.bytes": "bytes", "source.bytes": "bytes", "orig_bytes": "bytes", "orig_ip_bytes": "bytes",
        "network.packets": "packets", "source.packets": "packets", "orig_pkts": "packets",
        "event.start": "start_ts", "event.end": "end_ts",
        "event.duration": "(end_ts - start_ts)", "duration": "((end_ts - start_ts) / 1000000000.0)",
    },
    "packets": {"source.bytes": "len"},
}  # fmt: skip
"""Fields whose columns are different for packets and flows, with these columns."""

PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ipv6-icmp": 58, "icmp6": 58, "sctp": 132}
"""The protocol numbers of the values of `network.transport` and `proto`."""

VERSIONS = {"ipv4": 4, "ipv6": 6}
"""The IP versions of the values of `network.type`."""

KINDS = ("packets", "flows")
"""The kinds of rows that translated queries can read."""


SHOWN = {
    "packets": ("ts", "srcIP", "srcPort", "destIP", "destPort"),
    "flows": ("ts", "srcIP", "srcPort", "destIP", "destPort", "packets", "bytes"),
}
"""The columns of an event in the results of a rule, by kind of rows."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Finds the columns for the fields of a rule, for one kind of rows. `text` is the rule, for error messages."""

    kind: str
    text: str

    def column(self, field: FieldName) -> str:
        """Return the column of a field, or an expression over columns. Raises QueryError for an unknown field."""
        own = _OF_KIND[self.kind]
        name = field.name.lower()
        column = own.get(name) or _FIELDS.get(name) or field.name
        if column.startswith("("):
            return column
        spec = row_kind_of(self.kind).find(column)
        if spec is None:
            known = [*own, *(each for each, of in _FIELDS.items() if row_kind_of(self.kind).find(of) is not None)]
            problem = f"no column of {self.kind} has the field '{field.name}'"
            raise QueryError(problem, self.text, field.position, "a field of ECS or Zeek, or a column", known, name)
        return spec.name

    def condition(self, tree: Condition) -> str:
        """Return an SQL condition, whose value may be NULL."""
        match tree:
            case Truth(value):
                return "TRUE" if value else "FALSE"
            case Negation(part):
                return f"NOT {_is_true(self.condition(part))}"
            case Junction(operator, parts):
                return f" {operator} ".join(
                    f"({self.condition(each)})" if isinstance(each, Junction) else self.condition(each)
                    for each in parts
                )
            case Membership(field, kind, values, _):
                return self._membership(field, kind, values)
            case Comparison():
                return self._comparison(tree)

    def _comparison(self, tree: Comparison) -> str:
        left, right = tree.left, tree.right
        for operand, other in ((left, right), (right, left)):
            if isinstance(other, Constant) and other.value is None:
                if tree.operator not in ("=", "<>"):
                    raise QueryError(f"got null after '{tree.operator}'", self.text, other.position, "== or !=")
                test = "IS NULL" if tree.operator == "=" else "IS NOT NULL"
                return f"{self._operand(operand, None)} {test}"
        names = [each for each in (left, right) if isinstance(each, FieldName)]
        context = names[0] if len(names) == 1 else None
        first, second = self._operand(left, context), self._operand(right, context)
        return f"{first} {tree.operator} {second}"

    def _membership(self, field: FieldName, kind: str, values: Iterable[Constant]) -> str:
        column = self.column(field)
        if kind == "equal":
            literals = [self._literal(value, field) for value in values]
            return f"{column} = {literals[0]}" if len(literals) == 1 else f"{column} IN ({', '.join(literals)})"
        if kind == "cidr":
            parts = [f"{column} IN '{self._prefix(value)}'" for value in values]
        else:
            parts = [self._like(column, field, value) for value in values]
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _like(self, column: str, field: FieldName, value: Constant) -> str:
        """Return a comparison with a pattern. If the column is not a text, only `*` or a whole value is possible."""
        text = value.value
        spec = row_kind_of(self.kind).find(column)
        if not isinstance(text, str) or not set(text) & set("*?"):
            return f"{column} = {self._literal(value, field)}"
        if text == "*":
            return f"{column} IS NOT NULL"
        if spec is not None and spec.type == Type.TEXT:
            pattern = text.replace("%", r"\%").replace("_", r"\_").replace("*", "%").replace("?", "_")
            return f"{column} LIKE {_quoted(pattern)}"
        expected = "a value without * and ?, or cidrMatch(field, '10.0.0.0/8')"
        raise QueryError(f"got a pattern for the field '{field.name}'", self.text, value.position, expected)

    def _prefix(self, value: Constant) -> str:
        try:
            return prefix_text(parse_prefix(str(value.value)))
        except AddressError as error:
            raise QueryError(str(error), self.text, value.position, "a prefix such as 10.0.0.0/8") from None

    def _operand(self, operand: Operand, context: FieldName | None) -> str:
        match operand:
            case FieldName():
                return self.column(operand)
            case Constant():
                return self._literal(operand, context)
            case Arithmetic(operator, left, right, _):
                return f"({self._operand(left, None)} {operator} {self._operand(right, None)})"

    def _literal(self, constant: Constant, field: FieldName | None) -> str:
        """Return a value as an SQL literal. Names of protocols and IP versions become numbers."""
        value = constant.value
        column = None if field is None else self.column(field)
        if isinstance(value, str) and column in ("protocol", "ip_version"):
            numbers = PROTOCOLS if column == "protocol" else VERSIONS
            if value.lower() not in numbers:
                problem = f"unknown value '{value}'"
                raise QueryError(problem, self.text, constant.position, "a name or a number", numbers, value.lower())
            return str(numbers[value.lower()])
        spec = None if column is None else row_kind_of(self.kind).find(column)
        if isinstance(value, str) and spec is not None and spec.type == Type.ADDRESS:
            try:
                return f"'{address_text(parse_address(value))}'"
            except AddressError as error:
                raise QueryError(str(error), self.text, constant.position, "an address such as 10.0.0.1") from None
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if value is None:
            return "NULL"
        return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_true(condition: str) -> str:
    """Return a condition that is false where `condition` is NULL."""
    return condition if condition in ("TRUE", "FALSE") else f"coalesce({condition}, FALSE)"
