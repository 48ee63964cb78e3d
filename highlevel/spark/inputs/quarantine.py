"""Damaged parts of the inputs of a run: a list of their places, and copies of those that would be deleted.

    quarantine/damages.jsonl       a line for each damage: path, place, reason, micro-batch, copy
    quarantine/<link>/<segment>    a copy of each damaged segment of a spool, because its node deletes the segment

A damaged capture is not copied, because nothing deletes it. The damages are stored in the totals, and the list is
written from the totals. So if a micro-batch is repeated, each damage is still listed once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, open_replacement, replace_file

FOLDER = "quarantine"
"""Subfolder of the folder of a run."""

MAX_DAMAGES = 1000
"""Maximum number of damages in the totals. If there are more, the oldest are dropped."""

MAX_COPIED_BYTES = 1 << 30
"""Maximum size of all copies together. A segment that would exceed it is not copied."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged part of an input. `place`: its byte or segment. `link`: for a segment, which is copied, its link."""

    path: str
    place: str
    reason: str
    batch: int = -1
    link: str = ""

    @property
    def copy(self) -> str:
        """The path of the copy in the quarantine; empty if the part is not copied."""
        return f"{FOLDER}/{quote(self.link, safe=' ')}/{Path(self.path).name}" if self.link else ""


def keep_damages(folder: Path, damages: Sequence[Damage], batch_id: int) -> list[str]:
    """Copy the damaged segments of a micro-batch to the folder of a run, and write the list of all damages.

    A segment that a full spool has already deleted has no copy. Return warnings about segments for which there was no
    room.
    """
    new = [damage for damage in damages if damage.batch == batch_id]
    if not new:
        return []
    make_private_folder(folder / FOLDER)
    left_out = 0
    used = sum(path.stat().st_size for path in (folder / FOLDER).glob("*/*"))
    for damage in new:
        copy = folder / damage.copy
        if not damage.link or copy.exists():  # the copy exists if the micro-batch is repeated
            continue
        try:
            size = Path(damage.path).stat().st_size
            if used + size > MAX_COPIED_BYTES:
                left_out += 1
                continue
            make_private_folder(copy.parent)
            with open_replacement(copy) as (_, temporary):
                shutil.copyfile(damage.path, temporary)
        except FileNotFoundError:
            continue
        used += size
    lines = [
        json.dumps(
            {
                "path": damage.path,
                "place": damage.place,
                "reason": damage.reason,
                "micro-batch": damage.batch,
                "copy": damage.copy if damage.link and (folder / damage.copy).exists() else None,
            }
        )
        for damage in damages
    ]
    replace_file(folder / FOLDER / "damages.jsonl", "".join(f"{line}\n" for line in lines).encode())
    room = f"{folder / FOLDER} has at most {MAX_COPIED_BYTES:,} bytes of copies; move them away"
    return [f"micro-batch {batch_id}: {left_out} damaged segments have no copy: {room}"] if left_out else []
