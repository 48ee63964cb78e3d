"""The Containerfile without a container engine: its files exist, its packages and programs are those of the project.

`python -m tests.harness.containerfile FOLDER` executes its steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dashboards.deployment.compose import PROGRAMS
from dashboards.deployment.kubernetes import USER
from tests.harness.containerfile import ROOT, Instruction, read_containerfile

INSTRUCTIONS = read_containerfile()


def of(word: str, stage: int) -> list[Instruction]:
    return [each for each in INSTRUCTIONS if each.word == word and each.stage == stage]


def tracked() -> set[str]:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return {*subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()}


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    allowed = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    names = tracked()
    sources = [source for copy in of("COPY", 0) for source in copy.copied[0]]
    assert {*sources} | {"Containerfile"} == {*allowed}
    for source in sources:
        assert source in names or any(name.startswith(f"{source}/") for name in names), source


def test_the_image_has_all_of_the_product() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    copied = {source for copy in of("COPY", 0) for source in copy.copied[0]}
    folders = {path.name for path in ROOT.iterdir() if any(fnmatch(path.name, pattern) for pattern in packages)}
    assert folders <= copied
    assert {pyproject["project"]["readme"], *pyproject["project"]["license-files"]} <= copied
    installing = next(run.text for run in of("RUN", 0) if "uv pip install" in run.text)
    extras = installing.rpartition("[")[2].partition("]")[0].split(",")
    assert {*extras} <= {*pyproject["project"]["optional-dependencies"]}
    assert "spark" in extras
    assert "--constraint requirements.lock --build-constraint requirements.lock" in installing


def test_the_second_stage_has_the_programs_that_the_compose_file_starts() -> None:
    (copy,) = of("COPY", 1)
    assert copy.copied == (["/opt/wiretide"], "/opt/wiretide")
    assert copy.text.startswith("--from=build")
    assert [each.text for each in of("FROM", 0)] == [f"{of('FROM', 1)[0].text} AS build"]
    assert PROGRAMS == "/opt/wiretide/bin"
    assert [each.text for each in of("ENTRYPOINT", 1)] == [f'["{PROGRAMS}/entrypoint"]']
    assert any('setcap cap_net_raw+ep "$PREFIX/bin/python-capture"' in run.text for run in of("RUN", 1))
    assert all("PREFIX=/opt/wiretide" in each.text for stage in (0, 1) for each in of("ENV", stage))


@pytest.mark.parametrize("run", [each for each in INSTRUCTIONS if each.word == "RUN"], ids=lambda each: each.text[:30])
def test_each_step_is_a_shell_command(run: Instruction) -> None:
    done = subprocess.run(["sh", "-nc", run.text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_has_the_programs_of_a_standalone_cluster(tmp_path: Path) -> None:
    """The step runs here with the environment of the tests, and the guide starts a program that it links."""
    (run,) = [each.text for each in of("RUN", 1) if each.text.endswith(" /opt/spark")]
    command = run.replace("/opt/spark", str(tmp_path / "spark"))
    subprocess.run(["sh", "-euc", command], env=os.environ | {"PREFIX": sys.prefix}, check=True)
    guide = (ROOT / "docs" / "guide" / "spark.md").read_text("utf-8")
    (program,) = set(re.findall(r"--entrypoint /opt/spark/(\S+)", guide))
    assert os.access(tmp_path / "spark" / program, os.X_OK)
    assert list((tmp_path / "spark" / "jars").glob("spark-core_*.jar"))


def test_root_is_left_before_the_program_starts() -> None:
    words = [each.word for each in INSTRUCTIONS if each.stage == 1]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert of("USER", 1)[-1].text == str(USER)
    assert any(f"useradd --system --uid {USER} " in run.text for run in of("RUN", 1))
