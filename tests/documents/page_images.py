"""Draw the pictures of the live page in the guide: `python -m tests.documents.page_images`.

Generated captures of two links are replayed into a page. One link is silent since 90 seconds, and holds queries back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
from PIL import Image

from capture.metrics import RECORDS_READ, Samples
from capture.units import SECOND
from dashboards.page.history import History
from dashboards.page.site import Site
from dashboards.page.views import Views
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from highlevel.inline.engine import ALL_METRICS, InlineRun, Input
from highlevel.metrics import LOW_WATERMARK, PUNCTUATION_LAG
from queries.pipeline.file import PipelineFile, read_pipeline
from tests.documents.blocks import GUIDE
from tests.harness.browser import chromium
from tests.harness.command_line import run

IMAGES = GUIDE / "images"
SIZES = {
    "page-light": {"viewport": {"width": 1240, "height": 1320}, "color_scheme": "light"},
    "page-dark": {"viewport": {"width": 1240, "height": 1320}, "color_scheme": "dark"},
    "page-phone": {"viewport": {"width": 390, "height": 1500}, "is_mobile": True, "color_scheme": "light"},
}
"""Pictures by their name: the settings of the browser."""

TRAFFIC = ("--rate", "100", "--groups", "120", "--traffic", "dns:1", "--traffic", "tls:0.3", "--traffic", "http:0.3")
LINKS = {
    "uplink": ("--duration", "1500", "--attack", "syn-flood:420-480:50", *TRAFFIC),
    "branch": ("--duration", "1300", "--seed", "7", *TRAFFIC),
}


def write_pipeline(folder: Path) -> PipelineFile:
    """Generate two links, and the pipeline that `wiretide init` makes of them."""
    for link, words in LINKS.items():
        assert run("generate", f"{link}.pcap", *words, cwd=folder)[0] == 0
    assert run("init", *(f"{link}.pcap" for link in LINKS), cwd=folder)[0] == 0
    return read_pipeline(folder / "pipeline.toml")


@contextmanager
def replayed_page(pipeline: PipelineFile, folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Answer the queries of a pipeline over its files, and serve the page of the results.

    Yield its URL, and a function that lets 90 seconds pass in which only the link `uplink` has data.
    """
    plans = pipeline.plans()
    inputs = [Input(link, Path(path), link) for link, paths in pipeline.links.items() for path in paths]
    replayed = InlineRun(plans, inputs)
    exporter = Exporter(plans, ALL_METRICS.values(), pipeline.top, pipeline.ranks)
    history = History(folder / "history.sqlite", plans, exporter.series, 10**6 * SECOND, 1 << 30, print)
    for number, batch in replayed.results():
        table = pa.Table.from_batches([batch])
        exporter.add_results(plans[number].name, table)
        history.add(0, plans[number].name, table)
    samples = Samples(replayed.samples())
    for plan in plans:
        for link, seconds in (("uplink", 1_700_001_500.0), ("branch", 1_700_001_299.5)):
            samples.set(LOW_WATERMARK, seconds, plan.name, link)
            samples.set(PUNCTUATION_LAG, 1_700_001_500.0 - seconds, plan.name, link)
    exporter.set_samples(samples)
    now = [1_700_001_500.0]
    views = Views(history, lambda: exporter.current_samples, None, [*pipeline.links], lambda: now[0])

    def wait() -> None:
        now[0] += 90
        samples.add(RECORDS_READ, 1, "uplink")
        exporter.set_samples(samples)

    with serve(exporter, port=0, site=Site(history, views)) as server:
        yield server.url, wait
    history.close()


def write_image(content: bytes, name: str) -> None:
    """Write a picture with 128 colours, which halves its file."""
    picture = Image.open(BytesIO(content)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(IMAGES / name, optimize=True)


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        pipeline = write_pipeline(folder)
        with replayed_page(pipeline, folder) as (url, wait), chromium() as browser:
            with urlopen(f"{url}api/state"):  # the page begins to follow the links
                wait()
            for name, options in SIZES.items():
                page = browser.new_context(**options).new_page()
                page.goto(url)
                page.wait_for_function("() => performance.getEntriesByName('drawn').length > 0")
                page.wait_for_timeout(500)
                write_image(page.screenshot(), f"{name}.png")
                if name == "page-light":
                    panel = page.locator("[aria-labelledby=query-top-conversations]")
                    write_image(panel.screenshot(), "page-flows.png")
                page.context.close()


if __name__ == "__main__":
    main()
