"""Draw the pictures of a report in the guide: `python -m tests.documents.report_images`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.documents.page_images import TRAFFIC, write_image
from tests.harness.browser import chromium
from tests.harness.command_line import run

WORDS = ("--duration", "600", "--attack", "syn-flood:240-300:50", "--attack", "port-scan:400-430:20", *TRAFFIC)

SIZES = {
    "report-light": {"viewport": {"width": 1100, "height": 1250}, "color_scheme": "light"},
    "report-dark": {"viewport": {"width": 1100, "height": 1250}, "color_scheme": "dark"},
    "report-phone": {"viewport": {"width": 390, "height": 1250}, "is_mobile": True, "color_scheme": "light"},
}
"""Pictures by their name: the settings of the browser."""


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as text, chromium() as browser:
        folder = Path(text)
        assert run("generate", "office.pcap", *WORDS, cwd=folder)[0] == 0
        assert run("report", "office.pcap", cwd=folder)[0] == 0
        for name, options in SIZES.items():
            page = browser.new_context(**options).new_page()
            page.goto((folder / "report.html").as_uri())
            write_image(page.screenshot(), f"{name}.png")
            page.context.close()


if __name__ == "__main__":
    main()
