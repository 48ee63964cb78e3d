"""What became of each input, for those who want to know whether the answer is about all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from capture.files.capture import AnyCapture
from capture.files.followed import FollowedCapture
from capture.files.interfaces import LINK
from capture.files.pcap import PcapFormat
from capture.files.pcapng import PcapngFormat
from capture.metrics import FILES_DAMAGED, FILES_REFUSED, RECORDS_READ, RECORDS_SKIPPED, Samples, by_name
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.packets.link_layers import LINK_TYPES
from highlevel.lanes import Lane
from lowlevel.metrics import METRICS as LOW_METRICS

METRICS_BY_NAME = by_name(CAPTURE_METRICS, LOW_METRICS)

UNSUPPORTED = "unsupported_link_type"
"""The cause in RECORDS_SKIPPED."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One input after a run: its whole records, and how many files of it ended badly, by cause of FILES_DAMAGED.

    `several` says that it may be many files. `unsupported` of the records are of link types that are not supported;
    `link_types` are those, where they are known. `refused` files are no captures and were passed over.
    """

    name: str
    records: int
    damage: Mapping[str, int] = field(default_factory=dict)
    several: bool = False
    unsupported: int = 0
    link_types: tuple[int, ...] = ()
    refused: int = 0


def read_by_lanes(name: str, lanes: Sequence[Lane]) -> Reading:
    """Tell of one input, which is called `name` and was read by `lanes`."""
    samples = Samples()
    for lane in lanes:
        samples.merge(lane.samples(), METRICS_BY_NAME)
    capture = lanes[0].capture
    (found,) = _readings(samples, several=isinstance(capture, FollowedCapture))
    types = unsupported_link_types(capture) if found.unsupported else ()
    return replace(found, name=name, link_types=types)


def read_by_links(samples: Samples) -> list[Reading]:
    """Tell of the inputs as far as counters do: all of one link together."""
    return list(_readings(samples, several=True))


def _readings(samples: Samples, *, several: bool) -> Iterator[Reading]:
    for link in dict.fromkeys(labels[0] for name, labels in samples if name == RECORDS_READ.name):
        yield Reading(
            link,
            int(samples.total(RECORDS_READ, link=link)),
            {
                labels[1]: int(files)
                for (name, labels), files in samples.items()
                if name == FILES_DAMAGED.name and labels[0] == link and files
            },
            several,
            int(samples.total(RECORDS_SKIPPED, link=link, cause=UNSUPPORTED)),
            (),
            int(samples.total(FILES_REFUSED, link=link)),
        )


def unsupported_link_types(capture: AnyCapture) -> tuple[int, ...]:
    """The link types of a capture that cannot be decoded."""
    form = capture.format
    types: set[int] = set()
    if isinstance(form, PcapngFormat):
        types.update(form.table.matrix[: len(form.table.names), LINK].tolist())
    elif isinstance(form, PcapFormat):
        types.add(form.link_type)
    return tuple(sorted(types - LINK_TYPES.keys()))
