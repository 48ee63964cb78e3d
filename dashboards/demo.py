"""The demo: three generated links and the queries that show what they do."""

from __future__ import annotations

from pathlib import Path

from capture.generate import three_links
from queries.catalogue import CATALOGUE
from queries.pipeline_file import PipelineFile, read_pipeline

LINKS = ("Main1", "Main2", "Control")
QUERIES = ("packets", "links", "talkers", "syn_targets", "sources")
EVERY = "10 seconds"


def demo_pipeline(folder: Path, *, seconds: float, rate: float, speed: float, port: int) -> PipelineFile:
    """Generate the links into `folder` and write `pipeline.toml` beside them, which `wiretide run` runs as well."""
    captures = folder / "captures"
    three_links(captures, seconds, rate)  # the same seconds and rate make the same bytes, and a run goes on over them
    text = [
        'folder = "state"',
        f"speed = {speed}",
        "",
        "[links]",
        *(f'{link} = "captures/{link}.pcap"' for link in LINKS),
        "",
        "[metrics]",
        f"port = {port}",
    ]
    for name in QUERIES:
        sql = CATALOGUE[name].sql(*LINKS, every=EVERY)
        text += ["", f"[queries.{name}]", f"# {CATALOGUE[name].help}", f'sql = """{sql}"""']
    path = folder / "pipeline.toml"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return read_pipeline(path)
