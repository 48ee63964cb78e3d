"""A headless Chromium of the system, driven by Playwright. `make servers` installs it (Debian package chromium)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser, or skip the test if there is none. Its profile is temporary."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed; `make servers` installs it (Debian package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a user namespace, as for root in a container, Chromium needs --no-sandbox.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Messages:
    """Collects errors, messages of the console, and requests to other hosts."""

    def __init__(self, page: Any, url: str) -> None:
        self.lines: list[str] = []
        page.on("console", lambda message: self.lines.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.lines.append(f"error: {error}"))
        page.on("request", lambda request: self._request(request.url, url))

    def _request(self, requested: str, url: str) -> None:
        if not requested.startswith((url, "data:")):
            self.lines.append(f"request: {requested}")
