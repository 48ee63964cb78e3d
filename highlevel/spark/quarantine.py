"""Damaged input of a run: where it is, and copies of what would be deleted.

    quarantine/damages.jsonl       a line for each damage: path, place, reason, micro-batch, copy
    quarantine/<link>/<segment>    a copy of each damaged segment of a spool, because its node deletes the segment

A damaged capture is not copied, because nobody deletes it. The totals contain the damages, so a repeated micro-batch
reports each once. The file is written from them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, replace_file, replacing

FOLDER = "quarantine"
"""The folder in the folder of a run."""

MAX_DAMAGES = 1000
"""Maximum number of damages in the totals. The oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged part of an input. `place`: its byte or segment. `link`: the link of a segment, which is copied."""

    path: str
    place: str
    reason: str
    batch: int = -1
    link: str = ""

    @property
    def copy(self) -> str:
        """The copy in the quarantine; the empty text for an input that stays."""
        return f"{FOLDER}/{quote(self.link, safe=' ')}/{Path(self.path).name}" if self.link else ""


def keep_damages(folder: Path, damages: Sequence[Damage], batch_id: int) -> None:
    """Copy the damaged segments of a micro-batch to the folder of a run, and write the list of all damages.

    A segment that a full spool has deleted meanwhile has no copy.
    """
    if not any(damage.batch == batch_id for damage in damages):
        return
    for damage in damages:
        if damage.batch == batch_id and damage.link and Path(damage.path).exists():
            make_private_folder((folder / damage.copy).parent)
            with replacing(folder / damage.copy) as (_, temporary):
                shutil.copyfile(damage.path, temporary)
    make_private_folder(folder / FOLDER)
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
