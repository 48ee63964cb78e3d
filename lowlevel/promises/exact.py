"""Exact: the source knows what follows, or nobody does.

Of a file the scan has found the smallest time behind each block (`capture.files.scan`), which is the definition of the
low watermark itself; what is declared is all that is promised. A source that declares nothing promises at its end.
"""

from __future__ import annotations

from lowlevel.promises.promise import Promise


class Exact(Promise):
    """Promises what the source declares, and nothing by its rows."""
