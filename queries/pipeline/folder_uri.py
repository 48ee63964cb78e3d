"""The folder of a run as a path or as a URI.

The folder contains checkpoint, state and output, so all have one scheme.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
"""The beginning of a URI. A path may contain a colon, but not before its first slash."""


def parse_folder(text: str, base: Path = Path()) -> Path:
    """Return the folder that a path, relative to `base`, or a `file:` URI names. Raises ValueError for other URIs.

    >>> str(parse_folder("state", Path("/etc"))), str(parse_folder("file:/data/my%20run"))
    ('/etc/state', '/data/my run')
    """
    scheme = SCHEME.match(text)
    if scheme is None:
        return base / text
    parts = urlsplit(text)
    if parts.scheme != "file":
        raise ValueError(
            f"got {text!r}, expected a path or file:/PATH: state is replaced by renaming files and locked, which the "
            f"scheme {parts.scheme} cannot; all machines must share a file system, such as NFS"
        )
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise ValueError(f"got {text!r}, expected file:/PATH without a host, ? or #")
    return Path(unquote(parts.path))
