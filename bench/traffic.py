"""The captures of the benches: generated once and stored outside the repository.

A profile always gives the same bytes (`capture.generate`). So a digest of the profile is the name of its file, and an
existing file is used again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from capture.generate import Profile, generate

MILLION = 1_000_000
RECORD_BYTES = 96
"""Approximate bytes of a record in the file: a header of 16 bytes, and 80 bytes of the packet."""


def address_pairs(packets: int, ipv6: float = 0.0) -> Profile:
    """Return the usual traffic: 100 000 Zipf address pairs at 100 000 packets/s, about 80 bytes of each packet.

    At that rate 5 M packets are 50 s and 50 M are 500 s of capture time. `ipv6` is the share of pairs, 0..1.
    """
    return Profile(packets=packets, rate=100_000.0, groups=100_000, skew=1.0, ipv6=ipv6)


def generate_cached(profile: Profile, folder: Path) -> Path:
    """Return the capture of a profile. Generate it into `folder` unless it exists, with a line on standard error.

    Raises OSError if the disk is full.
    """
    digest = hashlib.sha256(repr(profile).encode()).hexdigest()[:16]
    path = folder / f"{profile.total}-packets-{digest}.pcap"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = profile.total * RECORD_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{folder}: got {free / 1e9:.1f} GB free, expected {needed / 1e9:.1f} GB; name another folder with --data"
        )
    print(f"bench: generating {profile.total:,} packets into {path} …", file=sys.stderr, flush=True)
    generate(profile, path)
    return path


def read_into_cache(path: Path) -> int:
    """Read a file, so that it is in the page cache. Return its size in bytes."""
    buffer = bytearray(1 << 22)
    size = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            size += count
    return size


def default_folder() -> Path:
    """Return the folder of captures: `$XDG_CACHE_HOME/wiretide/bench`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "wiretide" / "bench"
