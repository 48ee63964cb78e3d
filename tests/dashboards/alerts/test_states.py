"""The states of rules equal a reference that counts windows, for every division of the stream, and over restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from random import Random

import pytest

from capture.units import SECOND
from dashboards.alerts.states import Change, Group, Labels, Reason, RuleStates, Window, alert_id
from queries.pipeline.alert_settings import AlertRule
from tests.references.alert_states import Alert, absence_alerts, condition_alerts

MINUTE = 60 * SECOND
A, B = (("host", "a"),), (("host", "b"),)


def windows_of(text: str, *, end: int = MINUTE, labels: Labels = A, slide: int = MINUTE) -> list[Window]:
    """The windows of a text: `1` a matching row, `0` none, and a blank for a window without any row of the query."""
    return [
        Window(end + number * slide, {labels: {"number": number}} if mark == "1" else {})
        for number, mark in enumerate(text)
        if mark != " "
    ]


def alerts_of(changes: list[Change]) -> list[Alert]:
    """The alerts of changes, in the form of the reference."""
    alerts: dict[tuple[Labels, int], Alert] = {}
    for change in changes:
        assert change.group.began is not None
        key = change.group.labels, change.group.began
        assert (change.ended is None) == (key not in alerts), "an alert begins once, and ends once"
        alerts[key] = (*key, change.ended, change.reason)
    return sorted(alerts.values(), key=lambda alert: (alert[1], alert[0]))


def minutes(alerts: list[Alert]) -> list[tuple[float, float | None, str]]:
    return [(began / MINUTE, None if ended is None else ended / MINUTE, reason) for _, began, ended, reason in alerts]


@pytest.mark.parametrize(
    ("rule", "marks", "until", "expected"),
    [
        pytest.param({}, "0110", None, [(2, 4, "false")], id="from the first window to the first one without"),
        pytest.param({}, "0101", None, [(2, 3, "false"), (4, None, "true")], id="two alerts"),
        pytest.param({}, "1", 1, [(1, None, "true")], id="its own window is no end"),
        pytest.param({}, "1", 2, [(1, 2, "false")], id="a window without rows is an end"),
        pytest.param({}, "1  1", None, [(1, 2, "false"), (4, None, "true")], id="a gap of the query is an end"),
        pytest.param({"hold": 3 * MINUTE}, "111", None, [(3, None, "true")], id="for: three windows"),
        pytest.param({"hold": 3 * MINUTE}, "1101101", None, [], id="for: never three in a row"),
        pytest.param({"hold": 3 * MINUTE}, "11 1", None, [], id="for: a window without rows interrupts"),
        pytest.param({"hold": 121 * SECOND}, "111", None, [(3, None, "true")], id="for: rounded up to windows"),
        pytest.param({"keep": 2 * MINUTE}, "10100", None, [(1, 5, "false")], id="keep: one window without"),
        pytest.param({"keep": 61 * SECOND}, "10100", None, [(1, 5, "false")], id="keep: rounded up to windows"),
        pytest.param({"keep": 2 * MINUTE}, "1", 9, [(1, 3, "false")], id="keep: the watermark jumps"),
        pytest.param({"absent": 2 * MINUTE}, "1000", None, [(3, None, "absent")], id="absent"),
        pytest.param({"absent": 90 * SECOND}, "1000", None, [(3, None, "absent")], id="absent: rounded up to windows"),
        pytest.param({"absent": 2 * MINUTE}, "10101", None, [], id="absent: never two windows"),
        pytest.param({"absent": 2 * MINUTE}, "1 001", None, [(3, 5, "returned")], id="absent: a row returns"),
        pytest.param({"absent": 2 * MINUTE, "keep": 3 * MINUTE}, "1", 9, [(3, 6, "forgotten")], id="absent: forgotten"),
        pytest.param({"absent": 2 * MINUTE}, "0000", None, [], id="absent: unknown labels are not watched"),
    ],
)
def test_alerts_begin_and_end_at_the_ends_of_windows(
    rule: dict[str, int], marks: str, until: int | None, expected: list[tuple[float, float | None, str]]
) -> None:
    options: dict[str, int] = {"keep": 10**18, **rule} if "absent" in rule else rule
    states = RuleStates(AlertRule("r", "q", **options), MINUTE)  # type: ignore[arg-type]
    changes = states.add(windows_of(marks), None if until is None else until * MINUTE)
    assert minutes(alerts_of(changes)) == expected


def test_the_group_of_all_rows_is_watched_before_its_first_row() -> None:
    rule = AlertRule("r", "q", absent=2 * MINUTE, labels=(), keep=10**18)
    states = RuleStates(rule, MINUTE)
    assert states.add([], 10 * MINUTE + 59 * SECOND) == []
    (change,) = states.add([], 12 * MINUTE)
    assert (change.group.began, change.group.since, change.reason) == (12 * MINUTE, 10 * MINUTE, Reason.ABSENT)
    (change,) = states.add(windows_of("1", end=40 * MINUTE, labels=()), None)
    assert (change.ended, change.reason) == (40 * MINUTE, Reason.RETURNED)


def test_a_watermark_between_two_windows_begins_no_alert_about_an_open_window() -> None:
    states = RuleStates(AlertRule("r", "q", absent=90 * SECOND, keep=10**18), MINUTE)
    states.add(windows_of("1"), None)
    # At 2:45 the window from 2:00 to 3:00 is open. A row of it may be less than 90 s after the last one.
    assert states.add([], 2 * MINUTE + 45 * SECOND) == []
    assert states.add(windows_of("1", end=3 * MINUTE), None) == []


def test_a_window_that_was_examined_before_is_ignored() -> None:
    states = RuleStates(AlertRule("r", "q"), MINUTE)
    states.add(windows_of("110"), None)
    groups = dict(states.groups)
    assert states.add(windows_of("111"), 2 * MINUTE) == []
    assert states.groups == groups


def test_groups_over_the_limit_are_counted_and_groups_that_end_make_room() -> None:
    states = RuleStates(AlertRule("r", "q"), MINUTE, limit=2)

    def window(end: int, names: str) -> Window:
        return Window(end * MINUTE, {(("host", name),): {} for name in names})

    assert [change.group.labels[0][1] for change in states.add([window(1, "abcd")], None)] == ["a", "b"]
    assert states.dropped == 2
    changes = states.add([window(2, "xyz")], None)
    assert [(change.group.labels[0][1], change.reason) for change in changes] == [
        *(("a", Reason.FALSE), ("b", Reason.FALSE)),
        *(("x", Reason.TRUE), ("y", Reason.TRUE)),
    ]
    assert states.dropped == 3


def test_a_group_has_the_details_of_its_last_window_with_a_row() -> None:
    states = RuleStates(AlertRule("r", "q", hold=2 * MINUTE, keep=2 * MINUTE), MINUTE)
    begin, end = states.add(windows_of("1110"), 9 * MINUTE)
    assert (begin.group.details, begin.group.since, begin.group.last) == ({"number": 1}, 0, 2 * MINUTE)
    assert (end.group.details, end.group.since, end.group.last) == ({"number": 2}, 0, 3 * MINUTE)


def test_identities_depend_on_the_rule_and_the_labels_only() -> None:
    ids = {alert_id(rule, labels) for rule in ("r", "s") for labels in (A, B, (), (*A, ("port", "1")))}
    assert len(ids) == 8
    assert alert_id("r", (("port", "1"), *A)) == alert_id("r", (*A, ("port", "1")))


def drawn_rule(random: Random, slide: int) -> AlertRule:
    """A rule with times that are often no multiples of the slide, and with few labels."""

    def time(most: int) -> int:
        return random.choice([0, slide, random.randrange(1, most * slide)])

    labels = random.choice([(), ("host",)])
    if random.random() < 0.5:
        return AlertRule("r", "q", labels=labels, hold=time(4), keep=time(4))
    return AlertRule("r", "q", labels=labels, absent=max(1, time(5)), keep=time(6))


def drawn_windows(random: Random, labels: tuple[str, ...], slide: int, origin: int) -> list[Window]:
    """Windows with gaps, some of many windows, and groups that come and go."""
    names = ["a", "b", "c"] if labels else [""]
    likely = {name: random.choice([0.2, 0.5, 0.9]) for name in names}
    end, windows = origin + random.randrange(-5, 50) * slide, []
    for _ in range(random.randrange(1, 40)):
        matching = [name for name in names if random.random() < likely[name]]
        windows.append(Window(end, {(("host", name),) if name else (): {"end": end} for name in matching}))
        end += slide * random.choice([1, 1, 1, 1, 1, 2, 3, random.randrange(4, 30)])
    return windows


def divided(random: Random, windows: list[Window], slide: int) -> Iterator[tuple[list[Window], int | None]]:
    """Micro-batches: windows, and a watermark that no later window contradicts, between two windows too."""
    rest = list(windows)
    while rest:
        count = random.randrange(1, len(rest) + 1) if random.random() < 0.7 else 0
        batch, rest = rest[:count], rest[count:]
        past = windows[len(windows) - len(rest) - 1].end if len(rest) < len(windows) else windows[0].end - 3 * slide
        until = rest[0].end if rest else past + random.randrange(20) * slide
        yield batch, random.choice([None, random.randrange(past, until) if until > past else past])


def stored(states: RuleStates, rule: AlertRule, slide: int, origin: int) -> RuleStates:
    """New states with the groups of others, as after a restart."""
    restored = RuleStates(rule, slide, origin)
    restored.time = states.time
    for labels, group in states.groups.items():
        state = {one.name: getattr(group, one.name) for one in fields(Group) if one.name != "labels"}
        restored.groups[labels] = Group(labels, **json.loads(json.dumps(state)))
    return restored


@pytest.mark.parametrize("seed", range(200))
def test_states_equal_the_reference_for_every_division_and_over_restarts(seed: int) -> None:
    random = Random(seed)
    slide = random.choice([1, 7, MINUTE])
    origin = random.choice([0, 3])
    rule = drawn_rule(random, slide)
    windows = drawn_windows(random, rule.labels or (), slide, origin)
    for _ in range(4):
        states, changes = RuleStates(rule, slide, origin), []
        first, last = None, windows[0].end
        for batch, watermark in divided(random, windows, slide):
            changes += states.add(batch, watermark)
            known = [window.end - slide for window in batch[:1]]
            known += [] if watermark is None else [watermark - (watermark - origin) % slide]
            first = known[0] if first is None and known else first
            last = max(last, *known, *(window.end for window in batch)) if known else last
            if random.random() < 0.3:
                states = stored(states, rule, slide, origin)
        assert alerts_of(changes) == reference(rule, windows, slide, first, last), (seed, rule)
        assert states.dropped == 0


def reference(rule: AlertRule, windows: list[Window], slide: int, first: int | None, last: int) -> list[Alert]:
    """The alerts of the reference implementation for windows that end from `first` to `last`."""
    matching: Mapping[int, set[Labels]] = {window.end: {*window.matches} for window in windows}
    begin = min(windows[0].end - slide, first if first is not None else last)
    ends = range(begin, last + 1, slide)
    if rule.absent is None:
        return condition_alerts(matching, ends, rule.hold, rule.keep)
    watched_from = first if rule.labels == () else None
    return absence_alerts(matching, ends, rule.absent, rule.keep, watched_from)


def test_states_do_not_depend_on_the_division_with_a_restart_before_each_window() -> None:
    random = Random(5)
    rule = AlertRule("r", "q", labels=("host",), hold=2, keep=3)
    windows = drawn_windows(random, ("host",), 1, 0)
    whole = RuleStates(rule, 1).add(windows, windows[-1].end + 9)
    states, changes = RuleStates(rule, 1), []
    for window in windows:
        changes += states.add([window], window.end)
        states = stored(states, rule, 1, 0)
    changes += states.add([], windows[-1].end + 9)
    assert sorted(map(str, changes)) == sorted(map(str, whole))
    assert len(whole) > 10


def test_changed_groups_are_those_that_a_store_must_write() -> None:
    random = Random(8)
    rule = AlertRule("r", "q", labels=("host",), hold=3, keep=5)
    windows = drawn_windows(random, ("host",), 1, 0)
    states = RuleStates(rule, 1)
    written: dict[Labels, Group] = {}
    for window in windows:
        states.add([window], window.end)
        for labels in states.changed:
            group = states.groups.get(labels)
            if group is None:
                written.pop(labels, None)
            else:
                written[labels] = replace(group)
        states.changed.clear()
        assert written == states.groups
