"""The identity of a run's folder: its queries and inputs, with the IDs under which state and offsets are stored.

    run.json    state format, partitions, …; queries: id, name, fingerprint, …; inputs: id, path, …

Stored offsets and states are valid only for the same files and spools, the same queries, and the same number of
partitions. So their identity is written when a folder is first used, and compared at each later start.

Queries may change between two starts. A query keeps its ID, and so its state, as long as its *fingerprint* is the same
(`query_fingerprint`), even if its position and its name change. Every other query receives a new ID, and begins without
state at micro-batch `since`. IDs are never reused, so no query can load the state of another one. An input that no
query reads any more keeps its ID and its offset. If a query reads it again later, it continues there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from capture.files.capture import Capture
from capture.files.content_digest import digest_content
from capture.files.read_ahead import CHUNK_BYTES
from capture.lazy_dataclasses import dataclass
from capture.open import open_mapped
from highlevel.aggregation import UserColumn
from highlevel.plan.plan import Plan
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.table_reading import digest_table
from highlevel.spark.run_folder.checked_files import read_document, write_document
from lowlevel.expressions.user_functions import UserFunction
from lowlevel.spool.fingerprint import tree_text

PARTITIONS = "operator partitions"
"""Key of the number of partitions. It may change at a restart (`highlevel.spark.run_folder.state_partitions`)."""

STATE_FORMAT = 9
"""Version number of the layout of operator states and results. It is increased whenever the layout changes."""

READABLE_FORMATS = (7, 8, STATE_FORMAT)
"""Layouts of folders that this version of Wiretide can continue.

Format 9 has another layout for the runs of row patterns and automata. So an older folder is readable only if its
queries contain neither.
"""

ROW_PATTERNS = re.compile(r"\b(MATCH_RECOGNIZE|AUTOMATON)\b", re.IGNORECASE)
"""Clauses whose state only STATE_FORMAT has."""

FORMAT = "state format"
"""Key of the layout's version. A run that continues an older folder sets it to STATE_FORMAT before it writes state."""

A_FRAME = "a DataFrame"
"""The content of an input that is a DataFrame."""

DIGEST = "sums"
"""Prefix of the digest of a capture in run.json. Folders of earlier versions contain another digest, without a
prefix.
"""

ANOTHER_FOLDER = "take another folder, or delete this one to start again"


@dataclass(frozen=True)
class StoredQuery:
    """A query of a run. It reads the inputs with the IDs `inputs`, and began with micro-batch `since`."""

    id: int
    name: str
    fingerprint: str
    sql: str
    inputs: tuple[int, ...]
    since: int = 0


@dataclass(frozen=True)
class StoredInput:
    """An input of a run. The offsets contain it from micro-batch `since` on. `is_read`: a query reads it.

    `content` is a digest of the capture, "a spool", "a topic" or "a DataFrame".
    """

    id: int
    path: str
    link: str
    stream: str
    content: str
    since: int = 0
    is_read: bool = True

    @property
    def offset_key(self) -> str:
        """The key of the input in offsets."""
        return f"{self.id} {self.path}"

    @property
    def binding(self) -> tuple[str, str, str]:
        """(Path, link, stream), which identify the input in a pipeline."""
        return self.path, self.link, self.stream


@dataclass(frozen=True)
class RunIdentity:
    """The contents of run.json. `settings`: by name, values that must not change. Only PARTITIONS may change."""

    settings: Mapping[str, Any]
    queries: tuple[StoredQuery, ...]
    inputs: tuple[StoredInput, ...]
    next_query_id: int

    @property
    def reads_frames(self) -> bool:
        """Return whether the inputs are DataFrames. Sources of Spark then plan the micro-batches."""
        return any(input_.content == A_FRAME for input_ in self.inputs)

    @property
    def partitions(self) -> int:
        """The number of partitions of the state."""
        return int(self.settings[PARTITIONS])


@dataclass(frozen=True)
class QueryChanges:
    """The names of queries that differ between two starts, by the kind of difference.

    `renamed`: (old name, new name).
    """

    kept: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return True if there is a difference."""
        return bool(self.renamed or self.changed or self.added or self.removed)

    def lines(self, ended: Sequence[str] = ()) -> Iterator[str]:
        """Yield lines for the user. `ended`: names of queries whose inputs have all been read to their ends."""
        if self.kept:
            yield f"queries that keep their open windows: {', '.join(self.kept)}"
        for old, new in self.renamed:
            yield f"query {new}: was {old}; it keeps its open windows, and its results go to a new folder"
        for name in self.changed:
            yield f"query {name}: changed; its open windows are dropped; {_beginning(name, ended)}"
        for name in self.added:
            yield f"query {name}: new; {_beginning(name, ended)}"
        for name in self.removed:
            yield f"query {name}: removed; its open windows are dropped, its results stay"


def _beginning(name: str, ended: Sequence[str]) -> str:
    if name in ended:
        return "its inputs have been read to their ends, so it has no results in this folder"
    return "it begins where its inputs continue, so its first windows lack earlier rows"


def digest_file(file: Capture) -> str:
    """Return a digest of all bytes of a file. It does not depend on the name and the times of the file."""
    return f"{len(file.data)} bytes, {DIGEST} {digest_content(file.data, file.prefault_pages)}"


def digest_file_slowly(file: Capture) -> str:
    """Return the digest that folders of earlier versions contain: BLAKE2b over all bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(file.data), CHUNK_BYTES):
        digest.update(memoryview(file.data[start : start + CHUNK_BYTES]))  # type: ignore[arg-type]
    return f"{len(file.data)} bytes, {digest.hexdigest()}"


def query_fingerprint(plan: Plan) -> str:
    """Return 32 hexadecimal digits that depend on all nodes of a query, including the names of its columns.

    The name of the query has no effect. Comments, spaces, and upper or lower case in its text have no effect either. A
    Python function of the user is identified by its name and types, so its code may change.
    """
    return hashlib.blake2b(tree_text(plan.root, _without_code).encode(), digest_size=16).hexdigest()


def _without_code(value: object) -> object:
    if isinstance(value, UserFunction):
        return f"{value.usage} of type {value.result}"
    if isinstance(value, UserColumn):
        return value.name, value.parts
    if isinstance(value, pa.Schema):
        return tuple((field.name, str(field.type)) for field in value)
    return value


def describe_queries(plans: Sequence[Plan]) -> list[StoredQuery]:
    """Describe the queries of a new run, without their inputs."""
    return [StoredQuery(number, plan.name, query_fingerprint(plan), plan.sql, ()) for number, plan in enumerate(plans)]


def find_changes(folder: Path, plans: Sequence[Plan]) -> QueryChanges | None:
    """Return how `plans` differ from the queries of the run in a folder; None if the folder has no run.

    Inputs are not opened. Raises FolderError as `read_identity` does.
    """
    stored = read_identity(folder)
    if stored is None:
        return None
    new = describe_queries(plans)
    return _compare(stored.queries, new, _match_queries(stored.queries, new))


def describe_run(
    assignment: InputAssignment,
    part_count: int,
    block_records: int,
    is_paced: bool,
    captures: Mapping[Path, Capture],
) -> RunIdentity:
    """Describe a new run. `captures` are the mapped captures of the inputs, by path."""
    settings = {
        FORMAT: STATE_FORMAT,
        PARTITIONS: part_count,
        "records in a block": block_records,
        "paced by a speed": is_paced,
    }
    queries = tuple(
        replace(query, inputs=tuple(sorted(assignment.inputs_of(number))))
        for number, query in enumerate(describe_queries(assignment.plans))
    )
    inputs = []
    for number, input_ in enumerate(assignment.inputs):
        if input_.topic is not None:
            content = "a topic"
        elif input_.frame is not None:
            content = A_FRAME
        elif input_.table is not None:
            content = digest_table(input_.table)
        else:
            content = "a spool" if input_.spool else digest_file(captures[input_.path])
        inputs.append(StoredInput(number, str(input_.path), input_.link, input_.stream or "any", content))
    return RunIdentity(settings, queries, tuple(inputs), len(queries))


def read_identity(folder: Path) -> RunIdentity | None:
    """Return the identity of the run in a folder; None for a new folder.

    Raises FolderError for a folder of another version, and for a checkpoint without an identity.
    """
    path = folder / "run.json"
    try:
        document = read_document(path)
    except FileNotFoundError:
        if (folder / "checkpoint").exists():
            raise FolderError(
                f"{path}: missing, but there is a checkpoint; use another folder, or delete {folder}"
            ) from None
        return None
    found = document.get(FORMAT, "none")
    has_patterns = any(ROW_PATTERNS.search(query["sql"]) for query in document.get("queries", ()))
    readable = (STATE_FORMAT,) if has_patterns else READABLE_FORMATS
    if found not in readable:
        raise FolderError(
            f"{folder} contains the state of another version of Wiretide: got the state format {found}, expected "
            f"{' or '.join(map(str, readable))}{' for row patterns' if has_patterns else ''}; {ANOTHER_FOLDER}"
        )
    return RunIdentity(
        {key: value for key, value in document.items() if key not in ("queries", "inputs", "next query id")},
        tuple(StoredQuery(**{**query, "inputs": tuple(query["inputs"])}) for query in document["queries"]),
        tuple(StoredInput(**input_) for input_ in document["inputs"]),
        document["next query id"],
    )


def write_identity(folder: Path, identity: RunIdentity) -> None:
    """Write the identity of a run."""
    document = {
        **identity.settings,
        "queries": [asdict(query) for query in identity.queries],
        "inputs": [asdict(input_) for input_ in identity.inputs],
        "next query id": identity.next_query_id,
    }
    write_document(folder / "run.json", document, indent=1)


def continue_identity(
    folder: Path, stored: RunIdentity, new: RunIdentity, next_batch: int, next_offsets: int
) -> tuple[RunIdentity, QueryChanges]:
    """Give the queries and inputs of `new` the IDs of the stored run.

    Return the combined identity, and the differences.

    New queries begin with micro-batch `next_batch`, and new inputs with micro-batch `next_offsets`, whose offsets are
    not planned yet. Raises FolderError for a run that must not continue in this folder.
    """
    for key in [*new.settings, *stored.settings]:
        if key not in (PARTITIONS, FORMAT) and stored.settings.get(key) != new.settings.get(key):
            raise FolderError(
                f"{folder} contains a run with other settings; {key}: got {new.settings.get(key, 'none')}, expected "
                f"{stored.settings.get(key, 'none')}; {ANOTHER_FOLDER}"
            )
    inputs, id_of_input = _match_inputs(folder, stored, new, next_offsets)
    matches = _match_queries(stored.queries, new.queries)
    common_names = {query.name for query in stored.queries} & {query.name for query in new.queries}
    if stored.queries and not (any(matches) or common_names):
        raise FolderError(
            f"{folder} contains a run of other queries: got {_names(new.queries)}, expected some of "
            f"{_names(stored.queries)}; {ANOTHER_FOLDER}"
        )
    queries: list[StoredQuery] = []
    next_id = stored.next_query_id
    for query, match in zip(new.queries, matches, strict=True):
        ids = tuple(sorted(id_of_input[number] for number in query.inputs))
        if match is None:
            queries.append(replace(query, id=next_id, inputs=ids, since=next_batch))
            next_id += 1
            continue
        if ids != match.inputs:
            paths = {input_.id: input_.path for input_ in inputs}
            raise FolderError(
                f"{folder} contains a run in which the query {match.name} reads other inputs: got "
                f"{', '.join(paths[number] for number in ids) or 'none'}, expected "
                f"{', '.join(paths[number] for number in match.inputs) or 'none'}; {ANOTHER_FOLDER}"
            )
        queries.append(replace(query, id=match.id, inputs=ids, since=match.since))
    identity = RunIdentity(new.settings, tuple(queries), inputs, next_id)
    return identity, _compare(stored.queries, new.queries, matches)


def _names(queries: Sequence[StoredQuery]) -> str:
    return ", ".join(query.name for query in queries)


def _match_queries(stored: Sequence[StoredQuery], new: Sequence[StoredQuery]) -> list[StoredQuery | None]:
    """Return for each new query the stored query with its fingerprint. Queries with the same name are preferred."""
    matches: list[StoredQuery | None] = [None] * len(new)
    remaining = list(stored)
    for needs_name in (True, False):
        for number, query in enumerate(new):
            for candidate in remaining if matches[number] is None else ():
                if candidate.fingerprint == query.fingerprint and (candidate.name == query.name or not needs_name):
                    matches[number] = candidate
                    remaining.remove(candidate)
                    break
    return matches


def _compare(
    stored: Sequence[StoredQuery], new: Sequence[StoredQuery], matches: Sequence[StoredQuery | None]
) -> QueryChanges:
    kept: list[str] = []
    renamed: list[tuple[str, str]] = []
    changed: list[str] = []
    added: list[str] = []
    old_names = {query.name for query in stored}
    for query, match in zip(new, matches, strict=True):
        if match is not None and match.name == query.name:
            kept.append(query.name)
        elif match is not None:
            renamed.append((match.name, query.name))
        else:
            (changed if query.name in old_names else added).append(query.name)
    new_names = {query.name for query in new} | {old for old, _ in renamed}
    removed = [query.name for query in stored if query.name not in new_names]
    return QueryChanges(tuple(kept), tuple(renamed), tuple(changed), tuple(added), tuple(removed))


def _match_inputs(
    folder: Path, stored: RunIdentity, new: RunIdentity, next_offsets: int
) -> tuple[tuple[StoredInput, ...], dict[int, int]]:
    """Return all inputs of the run, including those that no query reads, and the ID of each input of `new`."""
    remaining = list(stored.inputs)
    known: list[StoredInput] = []
    next_id = 1 + max((input_.id for input_ in stored.inputs), default=-1)
    id_of_input: dict[int, int] = {}
    for input_ in new.inputs:
        match = next((candidate for candidate in remaining if candidate.binding == input_.binding), None)
        if match is not None and not _has_content(match, input_):
            raise FolderError(
                f"{folder} contains a run with another content of {input_.path}: got {input_.content}, expected "
                f"{match.content}; {ANOTHER_FOLDER}"
            )
        if match is None:
            known.append(replace(input_, id=next_id, since=next_offsets))
            next_id += 1
        else:
            remaining.remove(match)
            known.append(replace(match, content=input_.content, is_read=True))
        id_of_input[input_.id] = known[-1].id
    unread = [replace(input_, is_read=False) for input_ in remaining]
    return tuple(sorted([*known, *unread], key=lambda input_: input_.id)), id_of_input


def _has_content(stored: StoredInput, new: StoredInput) -> bool:
    """Return whether an input has the content that the folder expects. The folder may contain the earlier digest."""
    if DIGEST not in new.content or DIGEST in stored.content or stored.content == new.content:
        return stored.content == new.content
    return stored.content == digest_file_slowly(open_mapped(Path(new.path), "the stream engine"))


def apply_identity(assignment: InputAssignment, new: RunIdentity, identity: RunIdentity) -> InputAssignment:
    """Return an assignment with the IDs of `identity`. `new` describes the assignment without these IDs."""
    ids: dict[tuple[str, str, str], list[int]] = {input_.binding: [] for input_ in identity.inputs}
    for input_ in identity.inputs:
        ids[input_.binding].append(input_.id)
    input_ids = [ids[input_.binding].pop(0) for input_ in new.inputs]
    # The inputs are in the order of their IDs, so that the ports of a query keep their numbers.
    order = sorted(range(len(input_ids)), key=input_ids.__getitem__)
    return replace(
        assignment,
        inputs=tuple(assignment.inputs[number] for number in order),
        input_ids=tuple(input_ids[number] for number in order),
        query_ids=tuple(query.id for query in identity.queries),
        first_batches=tuple(query.since for query in identity.queries),
    )
