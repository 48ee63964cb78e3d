"""The file of arcs that the ready query `indicators` reads in tests: addresses of real and of generated captures."""

from pathlib import Path

INDICATORS = {
    "203.0.113.77": ("botnet 16", "2017-04-14T00:00:00Z", "2017-04-15T00:00:00Z"),
    "203.205.151.162": ("botnet 17", "2017-04-14T10:58:00Z", "2017-04-14T11:02:00Z"),
    "203.205.147.171": ("botnet 18", "2017-04-14T00:00:00Z", "2017-04-14T11:04:00Z"),
    "198.51.100.66": ("botnet 19", "2023-11-14T22:17:00Z", "2023-11-20T00:00:00Z"),
}
"""Addresses, and for each the name of the indicator, the time at which it begins and the time at which it ends."""


def write_indicators(path: Path) -> Path:
    """Write the arcs of INDICATORS: the default value of `file` of the ready query `indicators`."""
    arcs = (
        f"ARC idle TO contact WHEN server = '{address}' SET indicator = '{name}' FROM '{begin}' TO '{end}';\n"
        for address, (name, begin, end) in INDICATORS.items()
    )
    path.write_text("".join(arcs))
    return path
