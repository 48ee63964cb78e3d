"""The live page in a real browser: windows as they close, reconnects, texts of senders, accessibility.

Every test fails for a message of the console and for a request to another host.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from capture.metrics import INTERFACE_DROPPED, RECORDS_READ, Samples
from dashboards.prometheus.server import serve
from highlevel.metrics import LOW_WATERMARK
from tests.harness.browser import Messages, chromium
from tests.harness.live_pages import drawn_rows, live_page, window_rows

pytestmark = pytest.mark.slow("starts a browser")
PANEL = "#queries section:nth-of-type(1)"
ROWS = f"{PANEL} .panel-rows > .scroll tbody tr:not(.space)"
CAPTION = f"{PANEL} .panel-rows > .scroll caption"
REGION = f"{PANEL} .panel-rows > .scroll"
LEGEND = f"{PANEL} .legend tbody th"


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        from playwright.sync_api import expect as playwright_expect

        playwright_expect.set_options(timeout=60_000)
        yield started


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def opened(browser: Any, url: str, **options: Any) -> tuple[Any, Messages]:
    page = browser.new_context(**options).new_page()
    messages = Messages(page, url)
    page.goto(url)
    expect(page.locator("#status")).to_have_text(re.compile("^connected"))
    return page, messages


def texts(page: Any, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def test_windows_appear_as_they_close(browser: Any, tmp_path: Path) -> None:
    random = Random(2)
    with live_page(tmp_path) as live:
        plan = live.plans["talkers"]
        for number in range(5):
            live.history.add(number, "talkers", window_rows(plan, number, drawn_rows(random, plan, 12)))
        page, messages = opened(browser, live.url)
        page.wait_for_selector(ROWS)
        assert "window 2023-11-14 22:14:00 to 22:14:10: 12 rows" in page.inner_text(CAPTION)
        expect(page.locator(LEGEND)).to_have_count(9)  # 8 groups and the others
        assert texts(page, "#links tbody td")[:3] == ["active", "1,000", "900"]
        rows = drawn_rows(random, plan, 3)
        live.history.add(5, "talkers", window_rows(plan, 5, rows))
        expect(page.locator(CAPTION)).to_contain_text(": 3 rows")
        shown = [line.split("\t")[:2] for line in texts(page, ROWS)]
        expected = sorted(((row["n"], ".".join(map(str, row["srcIP"]))) for row in rows), reverse=True)
        assert shown == [[address, f"{n:,}"] for n, address in expected]
        page.click("#pause")
        live.history.add(6, "talkers", window_rows(plan, 6, drawn_rows(random, plan, 4)))
        expect(page.locator("#status")).to_have_text(re.compile("^paused"))
        assert ": 3 rows" in page.inner_text(CAPTION)
        page.click("#pause")
        expect(page.locator(CAPTION)).to_contain_text(": 4 rows")
        page.context.close()
    assert messages.lines == []


def test_the_chart_is_also_a_table(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "total") as live:
        for number in range(4):
            table = window_rows(live.plans["total"], number, [{"packets": number + 1}])
            live.history.add(number, "total", table)
        page, messages = opened(browser, live.url)
        page.wait_for_selector(".chart canvas")
        page.click("text=The chart as a table")
        expect(page.locator("figure details tbody tr")).to_have_count(4)
        shown = [line.split("\t") for line in texts(page, "figure details tbody tr")]
        assert [row[1] for row in shown] == ["1", "2", "3", "4"]
        assert shown[0][0] == "2023-11-14T22:13:30Z"
        page.context.close()
    assert messages.lines == []


def test_a_query_is_answered_and_a_wrong_one_has_a_reason(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path) as live:
        plan = live.plans["talkers"]
        live.history.add(0, "talkers", window_rows(plan, 0, drawn_rows(Random(1), plan, 6)))
        page, messages = opened(browser, live.url)
        page.fill("#sql", "SELECT count(*) AS groups FROM talkers")
        page.press("#sql", "Tab")
        page.press("#ask button", "Enter")
        page.wait_for_selector("#answer tbody tr")
        assert texts(page, "#answer td") == ["6"]
        page.fill("#sql", "SELECT nn FROM talkers")
        page.click("#ask button")
        page.wait_for_selector("#answer .error")
        assert "unknown column 'nn'" in page.inner_text("#answer")
        page.context.close()
    refused = [line for line in messages.lines if "400" not in line]  # the browser reports the status of a wrong query
    assert refused == []


def test_markup_of_senders_is_shown_as_text(browser: Any, tmp_path: Path) -> None:
    hostile = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(2)</script>",
        "=1+1",
        "\u202eevil\x1b[31m",
        '"><b>',
    ]
    with live_page(tmp_path, "names") as live:
        plan = live.plans["names"]
        rows = [{"name": name, "n": 10 - at} for at, name in enumerate(hostile)]
        live.history.add(0, "names", window_rows(plan, 0, rows))
        page, messages = opened(browser, live.url)
        page.on("dialog", lambda dialog: messages.lines.append(f"dialog: {dialog.message}"))
        page.wait_for_selector(ROWS)
        page.wait_for_selector(LEGEND)
        assert page.locator(ROWS + " td:first-child").all_text_contents() == hostile
        assert page.locator(LEGEND).all_text_contents() == hostile
        assert page.locator("img, b").count() == 0
        page.fill("#sql", "SELECT name FROM names")
        page.click("#ask button")
        page.wait_for_selector("#answer tbody tr")
        assert sorted(page.locator("#answer td").all_text_contents()) == sorted(hostile)
        page.context.close()
    assert messages.lines == []


def test_a_page_continues_after_a_restart_of_the_pipeline(browser: Any, tmp_path: Path) -> None:
    random = Random(4)
    with live_page(tmp_path) as live:
        plan, port = live.plans["talkers"], live.server.port
        live.history.add(0, "talkers", window_rows(plan, 0, drawn_rows(random, plan, 5)))
        page, messages = opened(browser, live.url)
        page.wait_for_selector(ROWS)
    expect(page.locator("#status")).to_have_text(re.compile("^disconnected"))
    with live_page(tmp_path, served=False) as again:
        # Two windows close before the browser reconnects: it receives both.
        again.history.add(1, "talkers", window_rows(plan, 1, drawn_rows(random, plan, 5)))
        again.history.add(2, "talkers", window_rows(plan, 2, drawn_rows(random, plan, 7)))
        with serve(again.exporter, port=port, site=again.site):
            expect(page.locator(CAPTION)).to_contain_text(": 7 rows")
            expect(page.locator("#status")).to_contain_text("2 windows since")
            page.context.close()
    assert [
        line for line in messages.lines if "ERR_CONNECTION_REFUSED" not in line and "Failed to load" not in line
    ] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_accessibility_defect(scheme: str, browser: Any, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with live_page(tmp_path, "pairs", "total", "rows") as live:
        for name in ("pairs", "total"):
            plan = live.plans[name]
            for number in range(3):
                live.history.add(number, name, window_rows(plan, number, drawn_rows(Random(1), plan, 60)))
        page, messages = opened(browser, live.url, color_scheme=scheme, bypass_csp=True)  # axe adds a script
        page.wait_for_selector(".chart canvas")
        page.click("text=The chart as a table >> nth=0")
        page.click("text=The diagram as a table")
        page.wait_for_selector(".flows svg rect")
        page.fill("#sql", "SELECT n FROM pairs")
        page.click("#ask button")
        page.wait_for_selector("#answer tbody tr")
        violations = Axe().run(page).response["violations"]
        page.context.close()
    assert [(each["id"], each["impact"], [node["html"] for node in each["nodes"]]) for each in violations] == []
    assert messages.lines == []


def test_a_phone_needs_no_horizontal_scrolling(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "pairs", "talkers") as live:
        for name, plan in live.plans.items():
            live.history.add(0, name, window_rows(plan, 0, drawn_rows(Random(1), plan, 60)))
        page, messages = opened(browser, live.url, viewport={"width": 360, "height": 740}, is_mobile=True)
        page.wait_for_selector(".chart canvas")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.evaluate("document.querySelector('#ask').scrollIntoView()")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.context.close()
    assert messages.lines == []


def test_10_000_rows_scroll_with_few_elements(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path) as live:
        plan = live.plans["talkers"]
        rows = drawn_rows(Random(1), plan, 10_000)
        live.history.add(0, "talkers", window_rows(plan, 0, rows))
        page, messages = opened(browser, live.url)
        expect(page.locator(CAPTION)).to_contain_text("10,000 rows")
        expect(page.locator("#queries table").last).to_be_visible()
        expect(page.locator(f"{REGION} table")).to_have_attribute("aria-rowcount", "10001")
        smallest = f"{min(row['n'] for row in rows):,}"
        page.locator(REGION).evaluate("element => { element.scrollTop = 1e9 }")
        expect(page.locator(ROWS).last.locator("td").nth(1)).to_have_text(smallest)
        assert page.locator(ROWS).count() == 40
        assert page.locator(ROWS).last.get_attribute("aria-rowindex") == "10001"
        place = page.locator(REGION).evaluate("element => element.scrollTop")
        live.history.add(1, "talkers", window_rows(plan, 1, rows))
        expect(page.locator(CAPTION)).to_contain_text("22:13:40: 10,000 rows")
        assert page.locator(REGION).evaluate("element => element.scrollTop") == place > 250_000
        page.context.close()
    assert messages.lines == []


def test_the_arrow_keys_read_a_chart(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "total") as live:
        for number in range(4):
            live.history.add(number, "total", window_rows(live.plans["total"], number, [{"packets": 1500 * number}]))
        page, messages = opened(browser, live.url)
        page.wait_for_selector(".chart canvas")
        page.focus(".chart")
        spoken = page.locator(".spoken")
        for key, text in (
            ("ArrowLeft", "22:14:00Z: total 4.5\u00a0k"),
            ("ArrowLeft", "22:13:50Z: total 3\u00a0k"),
            ("Home", "22:13:30Z: total 0"),
            ("ArrowRight", "22:13:40Z: total 1.5\u00a0k"),
            ("End", "22:14:00Z: total 4.5\u00a0k"),
        ):
            page.keyboard.press(key)
            expect(spoken).to_have_text(f"2023-11-14T{text}")
        page.context.close()
    assert messages.lines == []


def test_the_diagram_has_a_ribbon_for_each_flow_and_the_same_numbers_as_a_table(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path, "pairs") as live:
        plan = live.plans["pairs"]
        for number in range(3):
            rows = [
                {"srcIP": bytes([10, 0, 0, source]), "protocol": 6, "destIP": bytes([10, 0, 1, target]),
                 "n": amount, "bytes": 1000 * amount, "largest": 9}
                for source, target, amount in ((1, 1, 50), (1, 2, 30), (2, 1, 20))
            ]  # fmt: skip
            live.history.add(number, "pairs", window_rows(plan, number, rows))
        page, messages = opened(browser, live.url)
        page.wait_for_selector(".flows svg rect")
        # To the only protocol a ribbon for each source; from it one for each source and destination.
        assert page.locator(".flows svg path").count() == 2 + 3
        assert page.locator(".flows text").evaluate_all("list => list.map(each => each.firstChild.data)") == [
            "10.0.0.1", "10.0.0.2", "tcp", "10.0.1.1", "10.0.1.2",
        ]  # fmt: skip
        widths = page.locator(".flows svg path").evaluate_all(
            "list => list.map(each => +each.getAttribute('stroke-width'))"
        )
        total = widths[0] + widths[1]
        assert [round(width / total, 3) for width in widths] == [0.8, 0.2, 0.5, 0.2, 0.3]
        page.click("text=The diagram as a table")
        table = page.locator(".panel-rows figure tbody tr")
        expect(table).to_have_count(3)
        assert [line.split("\t") for line in table.all_inner_texts()] == [
            ["10.0.0.1", "tcp", "10.0.1.1", "150", "50.0 %"],
            ["10.0.0.1", "tcp", "10.0.1.2", "90", "30.0 %"],
            ["10.0.0.2", "tcp", "10.0.1.1", "60", "20.0 %"],
        ]
        page.select_option("select >> nth=1", "largest")  # a maximum has no diagram
        expect(page.locator(".panel-rows figure")).to_be_hidden()
        page.context.close()
    assert messages.lines == []


def test_a_silent_link_shows_since_when_and_what_it_holds_back(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path) as live:
        samples = Samples()
        for link, low in (("Main", 1_700_000_000.0), ("Backup", 1_700_000_090.0)):
            samples.set(RECORDS_READ, 10, link)
            for query in live.plans:
                samples.set(LOW_WATERMARK, low, query, link)
        samples.set(INTERFACE_DROPPED, 7, "Main")
        live.exporter.set_samples(samples)
        live.seconds = 1_700_000_100.0
        page, messages = opened(browser, live.url)
        expect(page.locator("#links tbody tr").nth(1)).to_contain_text(
            "active; holds back talkers, total by 1 min 30 s"
        )
        live.seconds += 75
        state = page.locator("#links .state").nth(1)
        text = "silent since 2023-11-14 22:15:00 (1 min 15 s); holds back talkers, total by 1 min 30 s"
        expect(state).to_have_text(text)
        expect(state).to_have_class("state alarming")
        expect(page.locator("#links .alarming.number")).to_have_text("7")
        page.context.close()
    assert messages.lines == []


def test_rows_of_a_long_table_are_loaded_when_they_become_visible(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path) as live:
        plan = live.plans["talkers"]
        rows = drawn_rows(Random(1), plan, 5_000)
        live.history.add(0, "talkers", window_rows(plan, 0, rows))
        page, messages = opened(browser, live.url)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        expect(page.locator(CAPTION)).to_contain_text("5,000 rows")
        ordered = sorted((row["n"] for row in rows), reverse=True)
        for at in (1000, 4900, 90, 2500):
            page.locator(REGION).evaluate("(element, top) => { element.scrollTop = top }", 28 * at)
            row = page.locator(f"{REGION} tr[aria-rowindex='{at + 2}'] td").nth(1)
            expect(row).to_have_text(f"{ordered[at]:,}")
        loaded = [url for url in requests if "/api/window" in url]
        assert 3 <= len(loaded) <= 8
        page.context.close()
    assert messages.lines == []


def test_two_pages_share_one_stream(browser: Any, tmp_path: Path) -> None:
    with live_page(tmp_path) as live:
        context = browser.new_context()
        pages = [context.new_page() for _ in range(3)]
        for page in pages:
            page.goto(live.url)
            expect(page.locator("#status")).to_have_text(re.compile("^connected"))
        plan = live.plans["talkers"]
        live.history.add(0, "talkers", window_rows(plan, 0, drawn_rows(Random(1), plan, 5)))
        for page in pages:
            expect(page.locator(CAPTION)).to_contain_text(": 5 rows")
        streams = next(
            sample.value
            for family in live.site.collect()
            for sample in family.samples
            if sample.name == "wiretide_page_streams"
        )
        assert streams == 1
        context.close()
