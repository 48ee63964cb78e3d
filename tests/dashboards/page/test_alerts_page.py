"""Alerts on the live page: those that are firing, those that have ended, texts of senders, accessibility."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from capture.units import SECOND
from dashboards.page import views
from dashboards.wire_text import escape
from tests.harness.browser import Messages, chromium
from tests.harness.live_pages import START, LivePage, live_page, window_rows

RULES = (
    '[alerts.many]\nquery = "names"\nwhere = "n > 5"\nsummary = "{name} was seen {n} times"\nseverity = "critical"\n'
)
HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "=1+1", '\u202eevil\x1b[31m"><b>']
ROWS = "#alerts tbody tr:not(.space)"


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        from playwright.sync_api import expect

        expect.set_options(timeout=60_000)
        yield started


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def opened(browser: Any, url: str, **options: Any) -> tuple[Any, Messages]:
    page = browser.new_context(**options).new_page()
    messages = Messages(page, url)
    page.on("dialog", lambda dialog: messages.lines.append(f"dialog: {dialog.message}"))
    page.goto(url)
    expect(page.locator("#status")).to_have_text(re.compile("^connected"))
    return page, messages


def evaluate(live: LivePage, number: int, names: list[str]) -> None:
    """Evaluate a window in which each of `names` was seen, the first one most often."""
    rows = [{"name": name, "n": 100 - number} for number, name in enumerate(names)]
    table = window_rows(live.plans["names"], number, rows)
    assert live.alerts is not None
    live.alerts.evaluate(number + 1, {"names": table}, {"names": (START + 10 * (number + 1)) * SECOND})


def cells(page: Any) -> list[list[str]]:
    return [row.locator("td").all_text_contents() for row in page.locator(ROWS).all()]


@pytest.mark.slow("starts a browser")
def test_alerts_appear_and_end(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "names", rules=RULES) as live:
        evaluate(live, 0, ["a"])
        page, messages = opened(browser, live.url)
        expect(page.locator("#alerts caption")).to_have_text("1 firing, and the last 0 that have ended")
        assert cells(page) == [
            ["firing", "2023-11-14T22:13:30Z", "", "critical", "many", "a was seen 100 times", "1",
             "window_start 2023-11-14T22:13:20Z, window_end 2023-11-14T22:13:30Z, name a, n 100"],
        ]  # fmt: skip
        assert page.locator("#sections a").all_text_contents() == ["Alerts", "names"]
        expect(page.locator("#status")).to_contain_text("1 alert is firing")
        evaluate(live, 1, ["b", "c"])
        expect(page.locator("#alerts caption")).to_have_text("2 firing, and the last 1 that have ended")
        assert [row[:3] + row[5:6] for row in cells(page)] == [
            ["firing", "2023-11-14T22:13:40Z", "", "b was seen 100 times"],
            ["firing", "2023-11-14T22:13:40Z", "", "c was seen 99 times"],
            ["ended", "2023-11-14T22:13:30Z", "2023-11-14T22:13:40Z", "a was seen 100 times"],
        ]
        page.context.close()
    assert messages.lines == []


@pytest.mark.slow("starts a browser")
def test_a_pipeline_without_rules_has_no_section_for_alerts(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "names") as live:
        page, messages = opened(browser, live.url)
        page.wait_for_selector("#queries section")
        assert not page.locator("#alerts").is_visible()
        assert page.locator("#sections a").all_text_contents() == ["names"]
        page.context.close()
    assert messages.lines == []


@pytest.mark.slow("starts a browser")
def test_markup_of_senders_in_alerts_is_shown_as_text(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "names", rules=RULES) as live:
        evaluate(live, 0, HOSTILE)
        page, messages = opened(browser, live.url)
        page.wait_for_selector(ROWS)
        expected = [f"{escape(name)} was seen {100 - number} times" for number, name in enumerate(HOSTILE)]
        assert [row[5] for row in cells(page)] == expected
        assert all(name in row[7] for name, row in zip(HOSTILE, cells(page), strict=True))
        assert page.locator("img, b").count() == 0
        page.context.close()
    assert messages.lines == []


@pytest.mark.slow("starts a browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_accessibility_defect_in_alerts(scheme: str, browser: Any, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with live_page(tmp_path, "names", rules=RULES) as live:
        evaluate(live, 0, ["a", "b"])
        evaluate(live, 1, ["a"])
        page, messages = opened(browser, live.url, color_scheme=scheme, bypass_csp=True)  # axe adds a script
        page.wait_for_selector(ROWS)
        violations = Axe().run(page).response["violations"]
        page.context.close()
    assert [(violation["id"], violation["impact"]) for violation in violations] == []
    assert messages.lines == []


def test_the_page_receives_a_limited_number_of_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MAX_MESSAGES", 3)
    with live_page(tmp_path, "names", served=False, rules=RULES) as live:
        evaluate(live, 0, [f"n{number}" for number in range(9)])
        evaluate(live, 1, [f"m{number}" for number in range(5)])
        answer = json.loads(b"".join(live.site.respond({"PATH_INFO": "/api/alerts"}, lambda *_: None)))
    assert answer["total"] == 5
    assert [alert["labels"]["name"] for alert in answer["firing"]] == ["m0", "m1", "m2"]
    assert [alert["labels"]["name"] for alert in answer["ended"]] == ["n8", "n7", "n6"]
