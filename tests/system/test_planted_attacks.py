"""Each ready query about patterns finds the attack of its kind in a generated capture, and nothing else.

Finds: a query whose defaults miss the attack that it describes, or that reports other attacks.
"""

from pathlib import Path
from typing import Any

import pytest

import wiretide
from capture.generate import Attack, Profile, generate
from highlevel.plan.pipeline import NodeOperators
from lowlevel.punctuation import Punctuation
from lowlevel.watch import watched_file
from lowlevel.watch.watched_file import Watchlists
from queries.gsql import compile_query
from queries.query_text import query_text
from tests.harness.recorded_runs import RecordedRun, rows_in

SECOND = 1_000_000_000
ATTACKS = {
    "scan-and-call-back": 1.0,
    "beacon": 0.2,
    "password-guessing": 0.5,
    "exfiltration": 10.0,
    "pulses": 200.0,
    "silent-server": 1.0,
    "lost-contacts": 0.2,
}
"""Steps per second of each kind. Each attack lasts one minute, and another minute later the next one begins."""

FOUND: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "call-backs": ({}, [("198.19.0.2", "198.19.0.3", 31, 1400, 4444)]),
    "beaconing": ({"shortest": 4}, [("198.19.0.3", "198.51.100.66", 443, 12)]),
    "guessed-passwords": ({}, [("198.19.0.2", "198.19.0.4", 15)]),
    "exfiltration": ({"network": "198.19.0.0/24"}, [("198.19.0.3", 420000)]),
    "pulses": ({}, [("planted", 0.4, 22)]),
    "silent-servers": ({}, [("198.19.0.4", 8080, 5)]),
    "lost-contacts": ({}, [("198.19.0.3", "198.19.0.4", 514, 4, 5.0)] * 2),
    "likely-guesses": ({}, [("198.19.0.2", "198.19.0.4", 15, 0.95)]),
}
"""Parameters, and the first columns of the answer."""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "planted.pcap"
    minute = 60 * SECOND
    attacks = tuple(
        Attack(kind, 2 * number * minute, (2 * number + 1) * minute, rate)
        for number, (kind, rate) in enumerate(ATTACKS.items())
    )
    generate(Profile(duration=14 * minute, rate=0.05, groups=2, attacks=attacks), path)
    return path


@pytest.mark.parametrize("name", FOUND)
def test_a_query_finds_the_attack_of_its_kind_only(name: str, capture: Path) -> None:
    params, expected = FOUND[name]
    rows = [tuple(row.values()) for row in wiretide.query(f"@{name}", capture, params=params).to_pylist()]
    shown = [tuple(map(rounded, row[: len(expected[0])])) for row in rows]
    assert shown == expected


def test_a_new_indicator_finds_the_contacts_of_the_minutes_before(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is empty until the beacon of the third minute has long ended, and empty again at the end."""
    monkeypatch.setattr(watched_file, "CHECK_INTERVAL", 0.0)
    arcs = tmp_path / "indicators.arcs"
    arcs.write_text("")
    sql = query_text("@indicators", {"file": str(arcs)})
    nodes = NodeOperators([compile_query(sql).root], [["a"]], watchlists=Watchlists(is_followed=True))
    items = RecordedRun(sql, capture, block_records=8).items()

    def process(part: slice) -> list[tuple[Any, ...]]:
        found = []
        for port, item in items[part]:
            changed = nodes.punctuate(port, item) if isinstance(item, Punctuation) else nodes.process_rows(port, item)
            found += rows_in([each for _, each in changed])
        return [(row[3], row[-2]) for row in found]

    two_thirds, rest = len(items) * 2 // 3, len(items) * 5 // 6
    assert process(slice(two_thirds)) == []
    arcs.write_text(
        "ARC idle TO contact WHEN server = '198.51.100.66' SET indicator = 'C2' FROM '2023-11-14T00:00:00Z'"
    )
    assert process(slice(two_thirds, rest)) == [("C2", 1)] * 12
    arcs.write_text("")
    assert process(slice(rest, None)) == [("C2", -1)] * 12


def rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value
