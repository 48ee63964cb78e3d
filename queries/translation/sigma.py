"""Translate Sigma correlation rules (specification 2.1) to queries.

A file contains several YAML documents: rules with `detection`, and one correlation that refers to these rules.

    event_count, value_count    GROUP BY in windows of the length `timespan`
    temporal                    MATCH_RECOGNIZE: all rules in any order within `timespan`
    temporal_ordered            MATCH_RECOGNIZE: the rules in their order within `timespan`

A detection is a condition over named selections. A selection is a map of `field|modifiers: values`, and all its fields
must match. If there is a list of values, or a list of maps, one of them must match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from capture.lazy_dataclasses import dataclass
from queries.text.errors import QueryError
from queries.translation.fields import SHOWN, FieldNames
from queries.translation.tree import Comparison, Condition, Constant, FieldName, Junction, Membership, Negation, Truth

_SPAN = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day"}
_COMPARED = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "eq": "=", "neq": "<>"}
_NUMERIC = {name: _COMPARED[name] for name in ("lt", "lte", "gt", "gte")}
_KINDS = ("event_count", "value_count", "temporal", "temporal_ordered")
_MODIFIERS = ("cidr", "all", "exists", *_NUMERIC)
_TOKEN = re.compile(r"\s*(?:(\()|(\))|([\w*-]+))")
MAX_TEMPORAL = 6
"""Maximum number of rules in a temporal correlation."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation: its kind, the conditions of its rules by their names, the fields of its groups, and its condition.

    `timespan`: an SQL duration. `condition`: pairs (SQL comparison operator, number). `counted`: the field of
    value_count.
    """

    kind: str
    rules: Mapping[str, Condition]
    group_by: tuple[FieldName, ...]
    timespan: str
    condition: tuple[tuple[str, int], ...]
    counted: FieldName | None


def sigma_to_sql(text: str, kind: str = "packets") -> str:
    """Translate a correlation, or a single rule, to a query over `packets` or `flows`.

    Raises QueryError for a text that is not a rule, and for parts that cannot be translated.
    """
    rules = _Rules(text)
    names = FieldNames(kind, text)
    if rules.correlation is None:
        (condition,) = rules.conditions.values()
        return f"SELECT {', '.join(SHOWN[kind])}\nFROM {kind}\nWHERE {names.condition(condition)}"
    correlation = rules.parse_correlation()
    if correlation.kind in ("event_count", "value_count"):
        return _count_query(correlation, names)
    return _temporal_query(correlation, names)


class _Rules:
    """The documents of a file: the conditions of its rules by `name` and `id`, and its correlation."""

    def __init__(self, text: str) -> None:
        self.text = text
        documents = self._load()
        self.conditions: dict[str, Condition] = {}
        self.correlation: Mapping[str, Any] | None = None
        self._aliases: dict[str, str] = {}
        for document in documents:
            self._add(document)
        if not self.conditions:
            raise QueryError("got no rule with a detection", text, 0, "the rules of a correlation in its file")
        if self.correlation is None and len(self.conditions) > 1:
            raise QueryError("got several rules without a correlation", text, 0, "one rule, or a correlation of rules")

    def _load(self) -> list[Any]:
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            problem = "rules of Sigma need PyYAML"
            raise QueryError(problem, self.text, 0, "pip install 'wiretide[sigma]'") from None
        try:
            return [document for document in yaml.safe_load_all(self.text) if document is not None]
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            position = 0 if mark is None else mark.index
            problem = getattr(error, "problem", None) or "the text is not YAML"
            raise QueryError(str(problem), self.text, position, "YAML") from None

    def _add(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise QueryError(f"got a document of type {type(document).__name__}", self.text, 0, "a map")
        if "correlation" in document:
            if self.correlation is not None:
                raise self.error("correlation", "got two correlations", "one in a file", last=True)
            if not isinstance(document["correlation"], dict):
                raise self.error("correlation", "correlation is no map", "type, rules, group-by, timespan, condition")
            self.correlation = document["correlation"]
            return
        name = str(document.get("name") or document.get("id") or document.get("title") or "rule")
        if not isinstance(document.get("detection"), dict):
            raise self.error(name, f"the rule '{name}' has no detection", "detection: a map of selections")
        if name in self.conditions:
            raise self.error(name, f"got two rules with the name '{name}'", "different names", last=True)
        self.conditions[name] = _Detection(document["detection"], self).condition()
        if "id" in document:
            self._aliases[str(document["id"])] = name

    def error(self, word: str, problem: str, expected: str, *, last: bool = False) -> QueryError:
        """Return an error at the position of a word in the text."""
        found = self.text.rfind(word) if last else self.text.find(word)
        return QueryError(problem, self.text, max(found, 0), expected)

    def position(self, word: str) -> int:
        """Return the position of a word; 0 if the text does not contain it literally."""
        return max(self.text.find(word), 0)

    def parse_correlation(self) -> Correlation:
        """Return the correlation of the file."""
        values = dict(self.correlation or {})
        kind = str(values.pop("type", ""))
        if kind not in _KINDS:
            raise self.error(kind or "correlation", f"got the type '{kind}'", " or ".join(_KINDS))
        rules = values.pop("rules", None)
        rules = [rules] if isinstance(rules, str) else rules
        if not isinstance(rules, list) or not rules:
            raise self.error("correlation", "the correlation has no rules", "rules: a list of names")
        conditions = {}
        for name in map(str, rules):
            name = self._aliases.get(name, name)
            if name not in self.conditions:
                known = ", ".join(self.conditions)
                raise self.error(name, f"no rule has the name '{name}'", f"a rule of this file: {known}", last=True)
            conditions[name] = self.conditions[name]
        group = values.pop("group-by", [])
        group = [group] if isinstance(group, str) else group
        span = _SPAN.fullmatch(str(values.pop("timespan", "")))
        if span is None or not int(span[1]):
            raise self.error("timespan", "the correlation has no timespan", "a time such as 30s, 5m, 1h or 1d")
        condition = values.pop("condition", None)
        values.pop("generate", None)
        for name in values:
            raise self.error(str(name), f"'{name}' is not supported", "type, rules, group-by, timespan, condition")
        compared, counted = self._condition(kind, condition)
        keys = tuple(FieldName(str(name), self.position(str(name))) for name in group)
        return Correlation(kind, conditions, keys, f"{span[1]} {_UNITS[span[2]]}", compared, counted)

    def _condition(self, kind: str, condition: Any) -> tuple[tuple[tuple[str, int], ...], FieldName | None]:
        if kind.startswith("temporal"):
            if condition is not None:
                raise self.error("condition", f"{kind} with a condition is not supported", f"{kind} without condition")
            return (), None
        if not isinstance(condition, dict):
            raise self.error("correlation", f"{kind} has no condition", "condition: a map such as gte: 10")
        values = dict(condition)
        field = values.pop("field", None)
        if (field is not None) != (kind == "value_count"):
            expected = "condition with field" if kind == "value_count" else "condition without field"
            raise self.error("condition", f"got field: {field} in {kind}", expected)
        for name, number in values.items():
            if name not in _COMPARED or isinstance(number, bool) or not isinstance(number, int):
                raise self.error(str(name), f"got {name}: {number}", f"{', '.join(_COMPARED)} with an integer")
        if not values:
            raise self.error("condition", "the condition compares nothing", "a map such as gte: 10")
        compared = tuple((_COMPARED[name], number) for name, number in values.items())
        return compared, None if field is None else FieldName(str(field), self.position(str(field)))


class _Detection:
    """The selections of a rule, and the condition over them."""

    def __init__(self, detection: Mapping[str, Any], rules: _Rules) -> None:
        self._rules = rules
        self._selections = {str(name): value for name, value in detection.items() if name != "condition"}
        text = detection.get("condition")
        if not isinstance(text, str):
            raise rules.error("detection", "the detection has no condition", "condition: a text such as selection")
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    def _split(self, text: str) -> list[str]:
        tokens, at = [], 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(f"got '{text[at:].strip()[0]}' in the condition")
            tokens.append(found[1] or found[2] or found[3])
            at = found.end()
        return tokens

    def _error(self, problem: str) -> QueryError:
        expected = f"and, or, not, parentheses, '1 of', 'all of', and {', '.join(self._selections)}"
        return self._rules.error(self._text, problem, expected)

    def condition(self) -> Condition:
        condition = self._or()
        if self._at < len(self._tokens):
            raise self._error(f"got '{self._tokens[self._at]}' in the condition")
        return condition

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, word: str) -> bool:
        if self._next.lower() == word:
            self._at += 1
            return True
        return False

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._take("or"):
            parts.append(self._and())
        return _joined("OR", parts)

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return _joined("AND", parts)

    def _not(self) -> Condition:
        if self._take("not"):
            return Negation(self._not())
        if self._take("("):
            condition = self._or()
            if not self._take(")"):
                raise self._error("the condition has no ')'")
            return condition
        quantity = self._next.lower()
        if quantity in ("1", "any", "all") and self._tokens[self._at + 1 : self._at + 2] == ["of"]:
            self._at += 2
            return _joined("AND" if quantity == "all" else "OR", self._named())
        (selection,) = self._named()
        return selection

    def _named(self) -> list[Condition]:
        """Return the selections that the next name selects. It may be `them`, or contain `*`."""
        name = self._next
        self._at += 1
        if name == "them":
            names = list(self._selections)
        elif "*" in name and self._tokens[self._at - 2 : self._at - 1] == ["of"]:
            pattern = re.compile(re.escape(name).replace(r"\*", ".*"))
            names = [each for each in self._selections if pattern.fullmatch(each)]
        else:
            names = [name] if name in self._selections else []
        if not names:
            raise self._error(f"no selection has the name '{name}'" if name else "the condition ends too early")
        return [self._selection(self._selections[each]) for each in names]

    def _selection(self, value: Any) -> Condition:
        if isinstance(value, list):
            return _joined("OR", [self._selection(each) for each in value])
        if not isinstance(value, dict) or not value:
            problem = "got a selection of words without fields" if isinstance(value, str) else "got an empty selection"
            raise self._rules.error("detection", problem, "a map of fields and values")
        return _joined("AND", [self._field(str(name), each) for name, each in value.items()])

    def _field(self, key: str, value: Any) -> Condition:
        name, *modifiers = key.split("|")
        position = self._rules.position(key)
        field = FieldName(name, position)
        for modifier in modifiers:
            if modifier not in _MODIFIERS:
                problem = f"the modifier '{modifier}' is not supported"
                raise QueryError(problem, self._rules.text, position, ", ".join(_MODIFIERS))
        values = value if isinstance(value, list) else [value]
        for each in values:
            if not isinstance(each, str | int | float | None):
                problem = f"got {each!r} for the field {name}"
                raise QueryError(problem, self._rules.text, position, "a number or a text")
        constants = tuple(Constant(each, self._rules.position(str(each))) for each in values)
        if "exists" in modifiers:
            return Comparison("<>" if value is True else "=", field, Constant(None, position), position)
        compared = [each for each in modifiers if each in _NUMERIC]
        parts: list[Condition]
        if compared:
            parts = [Comparison(_NUMERIC[compared[0]], field, each, position) for each in constants]
        elif "cidr" in modifiers:
            parts = [Membership(field, "cidr", (each,), position) for each in constants]
        else:
            parts = [
                Comparison("=", field, each, position)
                if each.value is None
                else Membership(field, "like", (each,), position)
                for each in constants
            ]
        return _joined("AND" if "all" in modifiers else "OR", parts)


def _joined(operator: str, parts: Sequence[Condition]) -> Condition:
    if not parts:
        return Truth(operator == "AND")
    return parts[0] if len(parts) == 1 else Junction(operator, tuple(parts))


def _keys(correlation: Correlation, names: FieldNames) -> list[str]:
    return [names.column(field) for field in correlation.group_by]


def _count_query(correlation: Correlation, names: FieldNames) -> str:
    keys = _keys(correlation, names)
    condition = names.condition(_joined("OR", list(correlation.rules.values())))
    if correlation.counted is None:
        count, value = "count(*)", "events"
    else:
        count, value = f"count(DISTINCT {names.column(correlation.counted)})", "values"
    having = " AND ".join(f"{value} {operator} {number}" for operator, number in correlation.condition)
    group = f"\nGROUP BY {', '.join(keys)}" if keys else ""
    return (
        f"SELECT {', '.join([*keys, f'{count} AS {value}'])}\nFROM {names.kind} [RANGE {correlation.timespan}]\n"
        f"WHERE {condition}{group}\nHAVING {having}"
    )


def _temporal_query(correlation: Correlation, names: FieldNames) -> str:
    keys = _keys(correlation, names)
    conditions = [names.condition(each) for each in correlation.rules.values()]
    count = len(conditions)
    if correlation.kind == "temporal" and count > MAX_TEMPORAL:
        problem = f"got {count} rules in a temporal correlation"
        raise QueryError(problem, names.text, 0, f"at most {MAX_TEMPORAL}, or temporal_ordered")
    marks = ",\n             ".join(
        f"CASE WHEN {condition} THEN 1 ELSE 0 END AS q{number}" for number, condition in enumerate(conditions, 1)
    )
    selected = " OR ".join(f"({condition})" for condition in dict.fromkeys(conditions))
    filters = [f"({selected})", *(f"{key} IS NOT NULL" for key in keys)]
    partition = f"PARTITION BY {', '.join(f'key{number}' for number in range(1, len(keys) + 1))} " if keys else ""
    shown = [f"key{number}" for number in range(1, len(keys) + 1)]
    columns = "".join(f"{key} AS key{number}, " for number, key in enumerate(keys, 1))
    if correlation.kind == "temporal_ordered":
        pattern = " O*? ".join(f"E{number}" for number in range(1, count + 1))
        define = ",\n           ".join(f"E{number} AS q{number} = 1" for number in range(1, count + 1))
        measures = ", ".join(f"E{number}.ts AS ts{number}" for number in range(1, count + 1))
        shown += ["match_start", "match_end", *(f"ts{number}" for number in range(1, count + 1))]
    else:
        # The match begins at a row of any rule and ends at the first row with which all rules have happened.
        done = " AND ".join(f"sum(O.q{number}) + q{number} > 0" for number in range(1, count + 1))
        pattern, measures = "O*? E", "count(*) AS events"
        define = f"E AS {done.replace('sum(', 'coalesce(sum(').replace(') +', '), 0) +')}"
        shown += ["match_start", "match_end", "events"]
    return (
        f"SELECT {', '.join(shown)}\nFROM (SELECT ts, {columns}\n             {marks}\n      FROM {names.kind}\n"
        f"      WHERE {' AND '.join(filters)})\nMATCH_RECOGNIZE (\n    {partition}ORDER BY ts\n"
        f"    MEASURES {measures}\n    PATTERN ({pattern}) WITHIN {correlation.timespan}\n    DEFINE {define})"
    )
