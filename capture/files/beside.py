"""What lies in a folder of captures and is none."""

from __future__ import annotations

TEMPLATES = "templates.json"
"""What exporters of flows announced, which the captures beside it are read by."""
