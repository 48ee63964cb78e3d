"""The memory of partial matches: words of entries, nodes, partitions and results, and the records that kernels take.

partition ──► entry ⇄ entry ⇄ entry ⇄ entry     one entry for each row, in the order of time
│       │       │       │
c ──────┼───────┼─► b ──► a     nodes: the runs that end with the row
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Floats, Integer, Integers, helper
from highlevel.speculation.lifetimes.kernels.records import LIST_WORDS
from lowlevel.punctuation import END

(
    TIME, SEQUENCE, LIFETIME_END, ROW, BEFORE, AFTER, NODES, NODE_COUNT, LIST_STATES, LIST_END, HAS_ROW, FREED_START,
    ENTRY_WORDS,
) = range(13)  # fmt: skip
"""Words of an entry.

TIME, SEQUENCE, LIFETIME_END, ROW: the time of its row, its sequence number, the end of its lifetime, and the number of
its values. BEFORE, AFTER: the entries before and after it. NODES: its first node. NODE_COUNT: the number of its nodes.
LIST_STATES: a bit for each state of its nodes (LAST_BIT for later states, or for unknown ones). LIST_END: the largest
RUN_END of its nodes. These three may state more than is true, never less. HAS_ROW: 1 while kernels may read the row; 0
if no run can consume it any more. FREED_START: the smallest start of the nodes that `gaps` has removed from the list,
or END. The words of the row follow.
"""


NO_NUMBER = END
"""Sequence number of a row without a number: no run continues with it or after it."""


START, START_SEQUENCE, RUN_END, STATE, REFERENCES, NEXT_NODE, NODE_WORDS = range(7)
"""Words of a node.

START, START_SEQUENCE: time and sequence number of the first row of the run. RUN_END: the smallest end of the lifetimes
of its rows. STATE: the number of its state. REFERENCES: the number of entries and nodes whose NODES or NEXT_NODE is
this node. NEXT_NODE: the next node of the list. The fields of the register follow.
"""


FIRST, LAST, CANDIDATES, MATCHES, PARTITION_WORDS = range(5)
"""Words of a partition: its first and its last entry, its first candidate, and the number of its last match.

The last two are for `matches` only.
"""


ENTRIES, NODE_RECORDS = 0, LIST_WORDS
"""Words of the state at which the lists of free entries and free nodes begin (`lifetimes.kernels.records`)."""


(
    RESULT_COUNT, LIST_HEAD, LIST_TAIL, LIST_COUNT, KEPT, KEPT_COUNT, KEPT_STATES, KEPT_END,
    PHASE, ENTRY, CURSOR, IS_CHANGED, SINCE, MISSING, CREATED, PROPAGATED, REMOVED, DROPPED, STATE_WORDS,
) = range(2 * LIST_WORDS, 2 * LIST_WORDS + 19)  # fmt: skip
"""Words of the state.

Before them: the lists of entries and nodes. RESULT_COUNT: the number of results. LIST_*: the list of nodes that is
being made. KEPT*: the nodes that it shares with the list before; their number, states and largest end as for an entry.
PHASE, ENTRY, CURSOR, IS_CHANGED, SINCE: where an interrupted row continues; IS_CHANGED is 1 if the list before the
cursor has changed, for runs that start until SINCE. The rest are counters: MISSING, retractions without a row; CREATED,
nodes made with a new row; PROPAGATED, nodes made with later rows; REMOVED, removed nodes; DROPPED, entries that the
watermark has removed.
"""


READY, REMOVE, EXTEND, RENEW = range(4)
"""Phases of a row, and of a change of arcs (`changed_arcs`)."""


(
    PARTITION, WEIGHT, RESULT_START, RESULT_END, RUN_START, RESULT_FIRST, RESULT_LAST, RESULT_WORDS,
) = range(8)  # fmt: skip
"""Words of a result: the partition, +1 or -1, the lifetime, and the time of the first row; and two words for
`matches` only: the sequence numbers of the first and last row. The register follows.
"""


ADDED, RETRACTED = 1, -1
"""Kinds of rows."""


LAST_BIT = 62
"""The bit of LIST_STATES for the state with this number and for all later ones."""


NO_ROOM = -2
"""Returned instead of a record or a list if there is no room for it."""


class Automata(NamedTuple):
    """An automaton for kernels (`highlevel.patterns.compilation`).

    * `initial`, `float_initial`: the register before the first row.
    * `fields`, `float_fields`, `row_words`, `float_row_words`: numbers of words.
    * `decisive_fields`, `decisive_float_fields`: two runs are equal if this number of their first fields is equal.
    * `is_preferred`: 1 if only the preferred match of each start is a result (MATCH_RECOGNIZE); 0 if every run in a
      final state is a result (AUTOMATON). If 1, the runs from one start are in the order of preference. If a run
      reaches a final state, the runs after it are removed: they cannot lead to the preferred match. The runs before it
      continue, because each of them would be preferred. Example: a row of A makes one run for each alternative.

          PATTERN (A | A B)    the first run is final, the second one is removed: the match is A
          PATTERN (A B | A)    the second run is final, the first one continues: the match is A B if a row of B is next,
                               otherwise A
    * `is_numbered`: 1 if a run continues only with a row whose sequence number is one more.
    * `can_ignore`: for each state, whether runs may ignore a row. `is_ignoring`: whether they may in any state.
    """

    arcs: Integers
    first_arcs: Integers
    end_arcs: Integers
    key_groups: Integers
    first_key_groups: Integers
    first_silent: Integers
    is_final: Integers
    initial: Integers
    float_initial: Floats
    fields: Integer
    float_fields: Integer
    row_words: Integer
    float_row_words: Integer
    decisive_fields: Integer
    decisive_float_fields: Integer
    is_preferred: Integer
    is_numbered: Integer
    empty_condition: Integer
    can_ignore: Integers
    is_ignoring: Integer


class Store(NamedTuple):
    """The memory of partial matches, with numbers of records for which there is room."""

    entries: Integers
    float_rows: Floats
    nodes: Integers
    float_nodes: Floats
    partitions: Integers
    results: Integers
    float_results: Floats
    state: Integers
    entry_room: Integer
    node_room: Integer
    result_room: Integer


class Rows(NamedTuple):
    """Rows in the order of arrival.

    `kind`: ADDED or RETRACTED. `time`, `stop`: the lifetime. `row`: the number of its values.
    """

    kind: Integers
    partition: Integers
    time: Integers
    stop: Integers
    sequence: Integers
    row: Integers
    words: Integers
    float_words: Floats


@helper
def entry_at(automata: Automata, entry):  # type: ignore[no-untyped-def]
    """Return the first word of an entry."""
    return entry * (ENTRY_WORDS + automata.row_words)


@helper
def node_at(automata: Automata, node):  # type: ignore[no-untyped-def]
    """Return the first word of a node."""
    return node * (NODE_WORDS + automata.fields)
