"""The messages of a rule about windows that are not final, and their corrections.

An event is the begin or the end of an alert. After each micro-batch the rule evaluates all windows that are not final
again, beginning with the states after the final windows. The events are compared with those of the previous
micro-batch, and these messages are sent:

    new event                       its message
    event with another content      its message, with the new content
    event that became final         its message, with the state `final`
    begin that has disappeared      an end with the reason `withdrawn`
    end that has disappeared        the alert is firing again

Only events of windows that are not final are stored, so their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from capture.lazy_dataclasses import dataclass
from dashboards.alerts.messages import ENDED, FIRING, PROVISIONAL, Message, end_message
from dashboards.alerts.states import Change, Labels, Reason

EventKey = tuple[Labels, int, str]
"""The labels of an alert, the time at which it began in ns, and FIRING or ENDED."""

Events = dict[EventKey, Message]


@dataclass(frozen=True, slots=True)
class Publication:
    """A message that is sent. `previous`: the message about the same event that was sent before, if any."""

    labels: Labels
    began: int
    message: Message
    previous: Message | None = None


def events_of(changes: Iterable[Change], message: Callable[[Change], Message]) -> Events:
    """Return the events of changes with their messages."""
    events: Events = {}
    for change in changes:
        assert change.group.began is not None, "a change belongs to an alert that has begun"
        status = FIRING if change.ended is None else ENDED
        events[change.group.labels, change.group.began, status] = message(change)
    return events


def find_corrections(
    published: Events,
    final: Events,
    provisional: Events,
    firing: Mapping[tuple[Labels, int], Message],
    now: int,
) -> list[Publication]:
    """Return the messages to send after a micro-batch, in the order of their times.

    `published`: the events of windows that were not final before. `final`: the events of windows that are final now.
    `provisional`: the events of windows that are not final now. `firing`: the messages of alerts that began in final
    windows and have not ended in final windows. `now`: the time (ns) of the newest window.
    """
    current = {**provisional, **final}
    begun = {labels for labels, _, status in current if status == FIRING}
    publications = []
    for key, message in published.items():
        if key in current:
            continue
        labels, began, status = key
        if status == ENDED:
            still = current.get((labels, began, FIRING), firing.get((labels, began)))
            if still is not None:
                publications.append(Publication(labels, began, still, still))
        elif (labels, began, ENDED) not in published and labels not in begun:
            ending = end_message(message, max(began, now), Reason.WITHDRAWN, PROVISIONAL)
            publications.append(Publication(labels, began, ending))
    for key, message in current.items():
        if published.get(key) != message:
            publications.append(Publication(key[0], key[1], message, published.get(key)))
    return sorted(publications, key=lambda sent: sent.message["ended"] or sent.message["began"])
