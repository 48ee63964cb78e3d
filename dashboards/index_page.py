"""The page at `/`: which queries are exposed, and where."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from highlevel.graph.plan import AnyPlan


def index_page(plans: Sequence[AnyPlan]) -> bytes:
    """Render the page as UTF-8: plain HTML without scripts, styles from elsewhere, or any link but `/metrics`."""
    queries = "\n".join(
        f"<h2>{escape(plan.name)}</h2>\n<p>from {escape(', '.join(plan.streams))}</p>\n<pre>{escape(plan.sql)}</pre>"
        for plan in plans
    )
    page = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Wiretide</title>
<style>
body {{ font: 1rem/1.5 sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }}
h2 {{ margin: 1.5rem 0 0; }}
p {{ margin: 0.25rem 0; }}
pre {{ white-space: pre-wrap; background: #f3f3f3; padding: 0.5rem; }}
</style>
<h1>Wiretide</h1>
<p>The last closed window of each query, and the counters of the pipeline, are at <a href="/metrics">/metrics</a>.</p>
{queries}
</html>
"""
    return page.encode()
