"""Translation of an automaton into arrays: arcs, instructions, and the words that a row needs.

    fence    change < -0.25 AND (r2 < 1 OR r1 > 1)
             ├─────────────┤    ├───────────────┤
             bit of the row     instructions over the register (`kernels.expressions`)

A condition that reads only the row is a bit of its first words, computed for a whole batch. Other parts that read only
the row are words of the row. Texts and addresses are numbers of known values (`ValueNumbers`), so they can be compared
for equality only.

If the arcs of an automaton change, the compiler translates only expressions that it has not met, and rows in memory
need only the new bits and words: places of earlier ones stay the same. Many arcs from one state that compare one value
of the row with constants are found by binary search:

    ARC idle TO hit WHEN destIP = '10.0.0.1'       key group of `idle`: the word of destIP, arcs by KEY
    ARC idle TO hit WHEN destIP = '10.0.0.2'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from highlevel.patterns.arc_places import ARC_WORDS, KEY, SPARE_ARCS, TARGET, ArcPlaces
from highlevel.patterns.automaton import (
    Arc,
    Automaton,
    Transfer,
    check_arc,
    check_deadlines,
    check_silent_arcs,
    keeps_run,
)
from highlevel.patterns.compiled_automaton import (
    ALWAYS,
    AT_END,
    NEVER,
    NO_INDEX,
    NUMBERED,
    CompiledAutomaton,
    Words,
)
from highlevel.patterns.instructions import Instructions
from lowlevel.expressions.tree import Binary, Expression, Literal, columns_of
from lowlevel.expressions.types import INTEGERS, Op, Type

SCANNED, KEYED, SILENT, TIMED = range(4)
"""Kinds of arcs, in the order in which they are stored. TIMED arcs have a deadline."""

MIN_KEYS = 8
"""Arcs are found by binary search if they compare a value of the row with at least this many constants."""

TRANSLATION_BYTES = 600
"""Memory of the Python objects of a translated arc. Measured: 400 bytes with a key, 870 with a register."""

MAX_UNUSED = 64
"""A store of translations is made again if it has more than twice the entries in use, plus this number."""


class _Translation(NamedTuple):
    """The fence and the transfer of an arc, or its deadline: the words from CONDITION to TRANSFER_END.

    `key_word`: the word of the row that is compared with a constant, or NO_INDEX. `key`: the constant, or its place in
    `AutomatonCompiler.key_literals`.
    """

    words: tuple[int, ...]
    key_word: int = NO_INDEX
    key: int = 0


_Parts = tuple[Expression, Transfer, Expression | None]
"""The fence, the transfer and the deadline of an arc."""

_Identity = tuple[str, str, bool, int, int, int]
"""The states of an arc, whether it is silent, and the identities of its expressions."""


class _ArcWords(NamedTuple):
    """The number of the source of an arc, and its words without times. `arc` keeps its expressions in memory."""

    arc: Arc
    source: int
    words: Words


class AutomatonCompiler:
    """Translates an automaton, and translates it again when its arcs change. Not thread safe."""

    def __init__(
        self, automaton: Automaton, number_literals: Callable[[Sequence[Literal]], Words] | None = None
    ) -> None:
        """Translate the expressions of an automaton.

        `number_literals` returns the numbers of constants of one of the types NUMBERED. Without it the arcs keep their
        order, and none has a key. With it the fields of the register keep their order, because fences may change.
        """
        self._automaton = automaton
        self._number_literals = number_literals
        types = {field.name: field.initial.type for field in automaton.register}
        read = _fields_of_fences(automaton) if number_literals is None else set[str]()
        ordered = sorted(types, key=lambda name: name not in read)
        self.integers = tuple(name for name in ordered if types[name] is not Type.FLOAT)
        self.floats = tuple(name for name in ordered if types[name] is Type.FLOAT)
        self.decisive_field_counts = (len(read.intersection(self.integers)), len(read.intersection(self.floats)))
        self._types = types
        self._instructions = Instructions(types, self.integers, self.floats)
        self._states = {name: number for number, name in enumerate(automaton.states)}
        self._is_final: Words = np.empty(0, np.int64)
        self._is_compiled = False
        self._array_bytes = 0
        self._places: ArcPlaces | None = None
        """The arcs that `patch` changes, after the first change of the arcs of an automaton without deadlines."""
        self._translations: dict[_Parts, _Translation] = {}
        self._known_words: dict[_Identity, _ArcWords] = {}
        """A cache of the words of arcs by the identities of the expressions, whose hashes cost more."""
        self._table: Words = np.empty((0, 3 + ARC_WORDS), np.int64)
        """A row for each arc: the kind, the source, the word of the key, and ARC_WORDS."""
        self._arcs: list[Arc] = []
        self._rows: dict[int, int] = {}
        """The arcs of the rows, and the row of each arc by its identity."""
        self._compared_constants: dict[Expression, set[Literal]] = {}
        self.key_literals: dict[Literal, int] = {}
        """Constants of the types NUMBERED that are keys, each with its place in `_key_numbers`."""
        self._key_numbers: Words = np.empty(0, np.int64)
        is_always_empty = automaton.empty_fence == Literal(True, Type.BOOL)
        self._empty_condition = NO_INDEX if is_always_empty else self._instructions.condition(automaton.empty_fence)

    @property
    def bytes(self) -> int:
        """Memory of the arcs: their arrays, and an estimate of the objects of their translations."""
        return self._table.nbytes + self._array_bytes + TRANSLATION_BYTES * len(self._translations)

    @property
    def has_many_unused(self) -> bool:
        """True if most translations are of arcs that are gone, so that a new compiler needs fewer words of a row."""
        return len(self._translations) > 2 * len(self._rows) + MAX_UNUSED

    def renumber_keys(self) -> None:
        """Forget the numbers of the constants of keys: the next call of `compile` numbers them again."""
        self._key_numbers = np.empty(0, np.int64)
        if self.key_literals:
            self._table, self._rows, self._arcs = self._table[:0], {}, []

    def _number_keys(self) -> None:
        kinds: dict[Type, list[Literal]] = {}
        for literal in self.key_literals:
            kinds.setdefault(literal.type, []).append(literal)
        numbers = np.empty(len(self.key_literals), np.int64)
        for of_kind in kinds.values():
            assert self._number_literals is not None
            numbers[[self.key_literals[literal] for literal in of_kind]] = self._number_literals(of_kind)
        self._key_numbers = numbers

    def compile(self, arcs: Sequence[Arc], states: Iterable[str] = ()) -> CompiledAutomaton:
        """Return the automaton with other arcs. `states`: the states of runs in memory, which may have no arc.

        Raises PatternError for arcs that contradict each other, and for an expression that needs a function of the
        register.
        """
        for name in states:
            self._states.setdefault(name, len(self._states))
        identities, rows = list(map(id, arcs)), self._rows
        if not rows.keys() >= set(identities):
            added = [arc for arc, identity in zip(arcs, identities, strict=True) if identity not in rows]
            self._translate(added)
            check_silent_arcs(arcs)
            check_deadlines(arcs, self._automaton.finals)
            self._add_rows(added)
        table = self._table[list(map(self._rows.__getitem__, identities))]
        self._places = None
        if self._is_compiled and self._number_literals is not None:
            return self._with_room(arcs, table)
        self._is_compiled = True
        return self._compiled(table)[0]

    def _with_room(self, arcs: Sequence[Arc], table: Words) -> CompiledAutomaton:
        """Return the automaton with room for arcs from each state, which `patch` uses. `table`: the rows of `arcs`."""
        if len(self._table) > 2 * len(arcs) + MAX_UNUSED:
            self._table, self._arcs = table, list(arcs)
            self._rows = {id(arc): place for place, arc in enumerate(arcs)}
        scanned = np.flatnonzero(table[:, 0] == SCANNED)
        counts = np.bincount(table[scanned, 1], minlength=len(self._states))
        room = np.repeat(np.arange(len(counts)), SPARE_ARCS + counts)
        unused = np.zeros((len(room), table.shape[1]), np.int64)
        unused[:, 1], unused[:, 3 + TARGET] = room, NO_INDEX
        compiled, order = self._compiled(np.concatenate([table, unused]))
        compiled.end_arcs[:] = compiled.first_arcs[:-1] + counts
        if compiled.first_deadlines[0] == compiled.first_deadlines[-1]:
            places, self._known_words = order.argsort(kind="stable").tolist(), {}
            of_arcs = ((arcs[number], places[number]) for number in scanned.tolist())
            self._places = ArcPlaces(compiled.arcs, compiled.first_arcs, compiled.end_arcs, of_arcs)
        return compiled

    def patch(self, removed: Sequence[Arc], added: Sequence[Arc]) -> bool:
        """Change arcs in the arrays of the compiled automaton. Return whether that was possible: if not, call compile.

        It is possible if the arcs have no key and no deadline, their expressions and states are known, and there is
        room. No arc may keep its run, so that no run begins or ceases to ignore rows.
        """
        places, known = self._places, self._known_words
        if places is None:
            return False
        for arc in removed:
            if keeps_run(arc) or not places.remove(arc):
                return False
        for arc in added:
            identity = arc.source, arc.target, arc.is_silent, id(arc.fence), id(arc.transfer), id(arc.deadline)
            words = known[identity] if identity in known else self._words_to_patch(identity, arc)
            if words is None or arc.begin >= arc.end or not places.add(arc, words.source, words.words):
                return False
        return True

    def _words_to_patch(self, identity: _Identity, arc: Arc) -> _ArcWords | None:
        """Return the words of an arc; None if `patch` cannot add it."""
        translation = self._translations.get((arc.fence, arc.transfer, arc.deadline))
        source, target = self._states.get(arc.source), self._states.get(arc.target)
        is_plain = not (arc.is_silent or arc.deadline is not None or keeps_run(arc))
        if translation is None or translation.key_word != NO_INDEX or source is None or target is None or not is_plain:
            return None
        if len(self._known_words) > 2 * len(self._translations) + MAX_UNUSED:
            self._known_words.clear()
        words = _ArcWords(arc, source, np.array([target, 0, 0, *translation.words, 0], np.int64))
        self._known_words[identity] = words
        return words

    def _add_rows(self, arcs: Sequence[Arc]) -> None:
        """Add the words of arcs with their kinds, sources, and words of keys."""
        numbers = self._states
        for arc in arcs:
            numbers.setdefault(arc.source, len(numbers))
            numbers.setdefault(arc.target, len(numbers))
        if len(self._key_numbers) < len(self.key_literals):
            self._number_keys()
        numbered = {word for value, word in self._instructions.row_integers.items() if value.type in NUMBERED}
        added = []
        for place, arc in enumerate(arcs, len(self._table)):
            instructions, key_word, key = self._translations[arc.fence, arc.transfer, arc.deadline]
            kind = SCANNED if key_word == NO_INDEX else KEYED
            if arc.is_silent or arc.deadline is not None:
                kind = SILENT if arc.is_silent else TIMED
            number = self._key_numbers[key] if key_word in numbered else key
            target = numbers[arc.target]
            added.append((kind, numbers[arc.source], key_word, target, arc.begin, arc.end, *instructions, number))
            self._rows[id(arc)] = place
        self._arcs += arcs
        self._table = np.concatenate([self._table, np.array(added, np.int64)])

    def _compiled(self, words: Words) -> tuple[CompiledAutomaton, Words]:
        """Return the automaton with these rows of `_table`, and their order."""
        states = len(self._states)
        sources = words[:, 0] * states + words[:, 1]
        has_keys = (words[:, 0] == KEYED).any()
        order = np.lexsort((words[:, 3 + KEY], words[:, 2], sources)) if has_keys else sources.argsort(kind="stable")
        words = words[order]
        firsts = sources[order].searchsorted(np.arange((TIMED + 1) * states + 1))
        first_arcs, first_keyed, first_silent, first_deadlines = (
            firsts[kind * states : (kind + 1) * states + 1] for kind in range(TIMED + 1)
        )
        key_groups, first_key_groups = self._key_groups(words, first_keyed)
        compiled = CompiledAutomaton(
            self._automaton.register,
            tuple(self._states),
            self.integers,
            self.floats,
            self.decisive_field_counts,
            tuple(self._instructions.conditions),
            tuple(self._instructions.conditions.values()),
            tuple(self._instructions.row_integers),
            tuple(self._instructions.row_integers.values()),
            self._instructions.row_words,
            tuple(self._instructions.row_floats),
            np.ascontiguousarray(words[:, 3:]) if len(words) else np.full((1, ARC_WORDS), NO_INDEX),
            first_arcs,
            first_arcs[1:].copy(),
            key_groups,
            first_key_groups,
            first_silent,
            first_deadlines,
            self._finalities(),
            self._empty_condition,
            self._instructions.machine(),
        )
        arrays = (compiled.arcs, key_groups, firsts, compiled.end_arcs, *compiled.machine[:3])
        self._array_bytes = sum(array.nbytes for array in arrays)
        return compiled, order

    def _key_groups(self, words: Words, first_keyed: Words) -> tuple[Words, Words]:
        """Return the key groups, and the first one of each state."""
        begin, end = int(first_keyed[0]), int(first_keyed[-1])
        if begin == end:
            return np.zeros(1, np.int64), np.zeros(len(first_keyed), np.int64)
        source, key_word = words[begin:end, 1], words[begin:end, 2]
        first = np.flatnonzero(np.append(True, (np.diff(source) != 0) | (np.diff(key_word) != 0)))
        key_groups = np.stack([key_word[first], begin + first, begin + np.append(first[1:], end - begin)], axis=1)
        return key_groups.reshape(-1), np.searchsorted(source[first], np.arange(len(first_keyed)))

    def _finalities(self) -> Words:
        if len(self._is_final) < len(self._states):
            self._is_final = np.array([_finality(self._automaton, name) for name in self._states], np.int64)
        return self._is_final

    def _translate(self, arcs: Sequence[Arc]) -> None:
        """Translate the expressions of arcs that have none yet."""
        added: dict[_Parts, Arc] = {}
        for arc in arcs:
            parts = arc.fence, arc.transfer, arc.deadline
            if arc.begin >= arc.end or parts not in self._translations:
                check_arc(arc, self._types)
                added[parts] = arc
        if self._number_literals is not None:
            for arc in added.values():
                for part in _conjuncts(arc.fence):
                    if (compared := self._comparison(part)) is not None:
                        self._compared_constants.setdefault(compared[0], set()).add(compared[1])
        for parts, arc in added.items():
            self._translations[parts] = self._translation(arc)

    def _comparison(self, part: Expression) -> tuple[Expression, Literal] | None:
        """Return the value of the row and the constant that a condition compares for equality, None for others."""
        match part:
            case Binary(Op.EQ, value, Literal() as literal) | Binary(Op.EQ, Literal() as literal, value):
                if isinstance(value, Literal) or literal.value is None or self._instructions.reads_register(value):
                    return None
                if value.type in NUMBERED and literal.type is value.type:
                    return value, literal
                is_integer = value.type in INTEGERS and literal.type in INTEGERS
                # A number of a row from 2**63 on is negative as a word, so negative constants are not keys.
                return (value, literal) if is_integer and 0 <= int(literal.value) < 2**63 else None  # type: ignore[arg-type]
            case _:
                return None

    def _translation(self, arc: Arc) -> _Translation:
        if arc.deadline is not None:
            return _Translation(self._instructions.add_deadline(arc.deadline))
        parts = _conjuncts(arc.fence)
        key_word, key = NO_INDEX, 0
        if not arc.is_silent and self._number_literals is not None:
            compared = {part: pair for part in parts if (pair := self._comparison(part)) is not None}
            constants = {part: len(self._compared_constants[value]) for part, (value, _) in compared.items()}
            most = max(constants, key=constants.__getitem__, default=None)
            if most is not None and constants[most] >= MIN_KEYS:
                value, literal = compared[most]
                key_word = self._instructions.row_integer(value)
                key = (
                    self.key_literals.setdefault(literal, len(self.key_literals))
                    if value.type in NUMBERED
                    else int(literal.value)  # type: ignore[arg-type]
                )
                parts.remove(most)
        return _Translation(self._instructions.add_arc(parts, arc.transfer), key_word, key)


def compile_automaton(automaton: Automaton) -> CompiledAutomaton:
    """Translate an automaton. Raises PatternError for an expression that needs a function of the register."""
    return AutomatonCompiler(automaton).compile(automaton.arcs)


def _finality(automaton: Automaton, state: str) -> int:
    if state in automaton.finals:
        return ALWAYS
    return AT_END if state in automaton.last_finals else NEVER


def _fields_of_fences(automaton: Automaton) -> set[str]:
    """Return the fields that decide which arcs apply: those of fences, and those from which they are computed."""
    names = {field.name for field in automaton.register}
    read = {column.name for arc in automaton.arcs for column in columns_of(arc.fence)} & names
    while True:
        added = {
            column.name
            for arc in automaton.arcs
            for name, value in arc.transfer
            if name in read
            for column in columns_of(value)
        } & names - read
        if not added:
            return read
        read |= added


def _conjuncts(expression: Expression) -> list[Expression]:
    match expression:
        case Binary(Op.AND, left, right):
            return _conjuncts(left) + _conjuncts(right)
        case _:
            return [expression]
