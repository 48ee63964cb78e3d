"""The folder of a run as a path, or as a URI of a file system or an object store.

The folder contains checkpoint, state and output, so all have one scheme. With an object store a run works in a copy on
this machine (`highlevel.spark.remote.run_copy`).
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from capture.lazy_dataclasses import dataclass

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
"""The beginning of a URI. A path may contain a colon, but not before its first slash."""

OBJECT_PREFIX = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/(?!\.{1,2}(?:/|$))[\w.=-]+)*)/?", re.ASCII)
"""The URI of a bucket, or of a prefix in it. Proxies would remove the segments `.` and `..`."""

CREDENTIALS = re.compile(r"(?<=://)[^/]*@")
"""The user and the password in a URI."""

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables with the URL of another store, the first one first."""

OBJECT_STORES = ("s3", "s3a")


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run. `uri` is empty for a local folder. Otherwise `path` is the copy on this machine."""

    path: Path
    uri: str = ""


def parse_run_folder(text: str, base: Path = Path()) -> RunFolder:
    """Return the folder that a path, relative to `base`, or a URI names. Raises ValueError for other schemes.

    >>> parse_run_folder("s3://lake/runs/office").uri, parse_run_folder("state", Path("/etc")).path
    ('s3a://lake/runs/office', PosixPath('/etc/state'))
    """
    scheme = SCHEME.match(text)
    if scheme is None or scheme[1].lower() not in OBJECT_STORES:
        return RunFolder(parse_folder(text, base))
    shown = CREDENTIALS.sub("…@", text)
    if shown != text:
        raise ValueError(f"got {shown!r}, expected s3a://BUCKET/PREFIX without credentials; use AWS_ACCESS_KEY_ID")
    prefix = OBJECT_PREFIX.fullmatch(scheme[1].lower() + text[scheme.end(1) :])
    if prefix is None or "/" not in prefix[1]:
        raise ValueError(f"got {text!r}, expected s3a://BUCKET/PREFIX with letters, digits and . _ = - in the prefix")
    return RunFolder(copy_home(prefix[1]) / "copy", f"s3a://{prefix[1]}")


def copy_home(prefix: str) -> Path:
    """Return the folder for the copy of a run in an object store: `$XDG_CACHE_HOME/wiretide/runs/…`.

    If `XDG_CACHE_HOME` is not an absolute path, it is `~/.cache`. Each endpoint in the environment has its own copies.
    Raises ValueError if there is no home folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        cache = cache if cache.is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise ValueError(f"{error} Set XDG_CACHE_HOME to a folder for the copy of the run") from None
    endpoint = next((os.environ[name].rstrip("/") for name in ENDPOINTS if os.environ.get(name)), "")
    digest = hashlib.blake2b(f"{endpoint}{prefix}".encode(), digest_size=8).hexdigest()
    return cache / "wiretide" / "runs" / f"{prefix.rpartition('/')[2]}-{digest}"


def parse_folder(text: str, base: Path = Path()) -> Path:
    """Return the local folder that a path, relative to `base`, or a `file:` URI names.

    Raises ValueError for other URIs.

    >>> str(parse_folder("state", Path("/etc"))), str(parse_folder("file:/data/my%20run"))
    ('/etc/state', '/data/my run')
    """
    scheme = SCHEME.match(text)
    if scheme is None:
        return base / text
    text = CREDENTIALS.sub("…@", text)
    parts = urlsplit(text)
    if parts.scheme in OBJECT_STORES:
        raise ValueError(f"got {text!r}, expected a folder on this machine: a path or file:/PATH")
    if parts.scheme != "file":
        raise ValueError(
            f"got {text!r}, expected a path, file:/PATH or s3a://BUCKET/PREFIX: state needs files that can be renamed "
            f"and locked, or writes under a condition; Wiretide has neither for the scheme {parts.scheme}"
        )
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise ValueError(f"got {text!r}, expected file:/PATH without a host, ? or #")
    return Path(unquote(parts.path))
