"""The outcome of each input: complete records, damage, and omitted records or files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from capture.files.capture import AnyCapture
from capture.files.followed import FollowedCapture
from capture.files.interfaces import LINK
from capture.files.pcap import PcapFormat
from capture.files.pcapng import PcapngFormat
from capture.lazy_dataclasses import dataclass
from capture.metrics import (
    FILES_DAMAGED,
    FILES_REFUSED,
    FLOW_SETS_DROPPED,
    FLOW_SETS_WAITING,
    INTERFACE_DOWN,
    INTERFACE_DROPPED,
    INTERFACE_UNREADABLE,
    RECORDS_READ,
    RECORDS_SKIPPED,
    LabelledName,
    Samples,
    by_name,
)
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.packets.candidates import LINK_TYPES as FALLBACK_LINK_TYPES
from capture.packets.fallback import is_installed
from capture.packets.link_layers import LINK_TYPES
from lowlevel.metrics import METRICS as LOW_METRICS

METRICS_BY_NAME = by_name(CAPTURE_METRICS, LOW_METRICS)

UNSUPPORTED = "unsupported_link_type"
"""The cause in RECORDS_SKIPPED."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The outcome of one input. `records`: number of complete records.

    `damage`: number of damaged files, by cause of FILES_DAMAGED. `several`: True if the input may consist of many
    files. `unsupported`: number of records of unsupported link types; `link_types`: these types, if known. `refused`:
    number of skipped files that are not captures. For a live interface, `dropped`: packets lost in the system,
    `unreadable`: unreadable packets in the ring, `down`: how often it was down. `unread_sets`: number of sets of flow
    records without a template.
    """

    name: str
    records: int
    damage: Mapping[str, int] = field(default_factory=dict)
    several: bool = False
    unsupported: int = 0
    link_types: tuple[int, ...] = ()
    refused: int = 0
    dropped: int = 0
    unreadable: int = 0
    down: int = 0
    unread_sets: int = 0


def reading_of(name: str, samples_of_shards: Iterable[Mapping[LabelledName, float]], capture: AnyCapture) -> Reading:
    """Return the outcome of the input `name`, from the counters of all its shards and its `capture`."""
    samples = Samples()
    for shard_samples in samples_of_shards:
        samples.merge(shard_samples, METRICS_BY_NAME)
    unsupported = int(samples.total(RECORDS_SKIPPED, cause=UNSUPPORTED))
    damage = {labels[1]: int(files) for (metric, labels), files in samples.items() if metric == FILES_DAMAGED.name}
    return Reading(
        name,
        int(samples.total(RECORDS_READ)),
        {cause: files for cause, files in damage.items() if files},
        isinstance(capture, FollowedCapture),
        unsupported,
        unsupported_link_types(capture) if unsupported else (),
        int(samples.total(FILES_REFUSED)),
        int(samples.total(INTERFACE_DROPPED)),
        int(samples.total(INTERFACE_UNREADABLE)),
        int(samples.total(INTERFACE_DOWN)),
        int(samples.total(FLOW_SETS_WAITING) + samples.total(FLOW_SETS_DROPPED)),
    )


def unsupported_link_types(capture: AnyCapture) -> tuple[int, ...]:
    """Return the numbers of the link types of a capture that cannot be decoded."""
    file_format = capture.format
    types: set[int] = set()
    if isinstance(file_format, PcapngFormat):
        types.update(file_format.table.matrix[: len(file_format.table.names), LINK].tolist())
    elif isinstance(file_format, PcapFormat):
        types.add(file_format.link_type)
    fallback = FALLBACK_LINK_TYPES.keys() if is_installed() else set()
    return tuple(sorted(types - LINK_TYPES.keys() - fallback))
