"""The Containerfile as instructions, and its steps without a container engine.

`python -m tests.harness.containerfile FOLDER` executes the RUN steps of the stage that installs Wiretide, in a folder
in place of the root of an image, and then a query. It downloads all packages of the image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = ("FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD")
"""Instructions that the Containerfile uses."""


@dataclass(frozen=True)
class Instruction:
    """A word and the rest of its line; continued lines are joined. `stage`: the number of FROM before it, from 0."""

    word: str
    text: str
    stage: int

    @property
    def copied(self) -> tuple[list[str], str]:
        """The sources and the target of COPY, without its options."""
        *sources, target = [word for word in self.text.split() if not word.startswith("--")]
        return sources, target


def read_containerfile() -> list[Instruction]:
    """Return the instructions. Raises ValueError for a line that is none."""
    lines = (ROOT / "Containerfile").read_text("utf-8").splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    return list(_instructions(joined))


def _instructions(text: str) -> Iterator[Instruction]:
    stage = -1
    for line in filter(None, text.splitlines()):
        found = re.fullmatch(rf"({'|'.join(INSTRUCTIONS)}) +(\S.*)", line)
        if found is None:
            raise ValueError(f"got {line!r}, expected one of {', '.join(INSTRUCTIONS)}")
        stage += found[1] == "FROM"
        yield Instruction(found[1], found[2].strip(), stage)


def install(folder: Path) -> None:
    """Execute the first stage in `folder`: copy its files, and run its steps with this Python."""
    build, prefix = folder / "build", folder / "wiretide"
    build.mkdir(parents=True)
    environment = {**os.environ, "PREFIX": str(prefix)}
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    for instruction in read_containerfile():
        if instruction.stage == 0 and instruction.word == "COPY":
            sources, target = instruction.copied
            for source in sources:
                _copy(ROOT / source, build / target)
        if instruction.stage == 0 and instruction.word == "RUN":
            print(f"RUN {' '.join(instruction.text.split())}", flush=True)
            subprocess.run(["sh", "-euc", instruction.text], cwd=build, env=environment, check=True)
    subprocess.run([prefix / "bin" / "wiretide", "--version"], check=True)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    install(Path(sys.argv[1]).absolute())
