"""Silences: what they cover, a file that changes, and the messages about wrong files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from capture.units import SECOND
from dashboards.alerts.silences import Silences
from queries.pipeline.sections import PipelineError

NOON = 1_795_521_600 * SECOND  # 2026-11-24T12:00:00Z
HOUR = 3600 * SECOND
LABELS = {"scan": ("srcIP", "destPort"), "silent": ()}
SILENCE = """
[[silence]]
until = 2026-11-24T13:00:00Z
comment = "test"
"""


def silences(tmp_path: Path, text: str) -> Silences:
    (tmp_path / "silences.toml").write_text(text)
    return Silences(tmp_path / "silences.toml", LABELS, print)


@pytest.mark.parametrize(
    ("lines", "rule", "labels", "time", "covered"),
    [
        ("", "scan", {"srcIP": "10.0.0.1"}, NOON, True),
        ("", "silent", {}, NOON + HOUR - 1, True),
        ("", "silent", {}, NOON + HOUR, False),
        ("from = 2026-11-24T13:00:00+01:00", "scan", {}, NOON, True),
        ("from = 2026-11-24T12:00:00.000001Z", "scan", {}, NOON + 999, False),
        ("from = 2026-11-24T12:00:00.000001Z", "scan", {}, NOON + 1000, True),
        ('rule = "scan"', "scan", {}, NOON, True),
        ('rule = "scan"', "silent", {}, NOON, False),
        ('labels = { srcIP = "10.0.0.1" }', "scan", {"srcIP": "10.0.0.1", "destPort": "80"}, NOON, True),
        ('labels = { srcIP = "10.0.0.1" }', "scan", {"srcIP": "10.0.0.2", "destPort": "80"}, NOON, False),
        ("labels = { destPort = 443 }", "scan", {"srcIP": "10.0.0.1", "destPort": "80"}, NOON, False),
        ('labels = { destPort = 80 }', "scan", {"srcIP": "10.0.0.1", "destPort": "80"}, NOON, True),
    ],
)  # fmt: skip
def test_a_silence_covers_a_rule_labels_and_a_time(
    lines: str, rule: str, labels: dict[str, str], time: int, covered: bool, tmp_path: Path
) -> None:
    assert silences(tmp_path, SILENCE + lines).covers(rule, tuple(labels.items()), time) == covered


def test_a_changed_file_takes_effect_and_a_wrong_one_is_reported_once(tmp_path: Path) -> None:
    lines: list[str] = []
    path = tmp_path / "silences.toml"
    path.write_text("")
    followed = Silences(path, LABELS, lines.append)
    assert not followed.covers("scan", (), NOON)
    path.write_text(SILENCE)
    followed.refresh()
    assert followed.covers("scan", (), NOON)
    path.write_text(SILENCE + "labels = 5")
    followed.refresh()
    followed.refresh()
    assert followed.covers("scan", (), NOON)
    path.unlink()
    followed.refresh()
    assert followed.covers("scan", (), NOON)
    path.write_text("")
    followed.refresh()
    assert not followed.covers("scan", (), NOON)
    assert lines == [
        f"warning: {path}: silence[1].labels: got 5, expected a section; the silences stay as they were",
        (
            f"warning: {path}: cannot be read as silences in TOML: [Errno 2] No such file or directory: '{path}'; "
            "the silences stay as they were"
        ),
    ]


def test_without_a_file_nothing_is_silenced() -> None:
    none = Silences(None, LABELS, print)
    none.refresh()
    assert not none.covers("scan", (), NOON)


WRONG = {
    "silence = 5": "silence: got 5, expected a list",
    "silence = [5]": "silence[1]: got 5, expected a table [[silence]]",
    "[[silences]]": "silences is not known; valid here: silence",
    "[[silence]]\nuntil = 2026-11-24T13:00:00Z": "silence[1].comment is missing: expected a reason",
    '[[silence]]\ncomment = "c"': "silence[1].until is missing: expected a time such as 2026-11-25T10:00:00Z",
    '[[silence]]\ncomment = "c"\nuntil = "2026-11-24"': "silence[1].until: got 2026-11-24, expected a time with zone: "
    "2026-11-25T10:00:00Z",
    '[[silence]]\ncomment = "c"\nuntil = 2026-11-24T13:00:00': "silence[1].until: got 2026-11-24 13:00:00, expected a "
    "time with zone: 2026-11-25T10:00:00Z",
    SILENCE + "from = 2026-11-24T13:00:00Z": "silence[1].until: got a time that is not after `from`, expected a later "
    "one",
    SILENCE + 'rule = "scans"': "silence[1].rule: got 'scans', expected a rule of the pipeline: scan, silent",
    SILENCE + 'labels = { srcip = "::1" }': "silence[1].labels: got 'srcip', expected labels of the rules: srcIP, "
    "destPort",
    SILENCE
    + 'rule = "silent"\nlabels = { srcIP = "::1" }': "silence[1].labels: got 'srcIP', expected labels of silent: none",
    SILENCE + SILENCE.replace("until", "til"): "silence[2].til is not known; valid here: rule, labels, from, until, "
    "comment",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_wrong_files_have_a_message_with_the_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"^{re.escape(f'{tmp_path}/silences.toml: {message}')}$"):
        silences(tmp_path, text)


def test_a_file_that_is_no_toml_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"silences.toml: cannot be read as silences in TOML: .*"):
        silences(tmp_path, "[[silence")
