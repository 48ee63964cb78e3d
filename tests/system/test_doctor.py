"""`wiretide doctor`, `wiretide columns`, and the compilation of kernels in several processes.

The tests detect a kernel that set-up does not compile, and a failed worker that stops or hangs the command. They detect
lists of columns or kinds that differ from those in queries.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wiretide
from capture.kernel_compilation import compile_into_cache, declare_kernels
from capture.native import kernels
from dashboards.commands.columns import HEADER, Kind, column_lines
from lowlevel.kinds import KINDS, row_kind_of

ROOT = Path(wiretide.__file__).parent


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, wiretide.__file__, *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


def test_every_module_that_declares_a_kernel_is_found() -> None:
    declare_kernels()
    modules = {kernel.function.__module__ for kernel in kernels}
    folders = ("capture", "lowlevel", "highlevel")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    others = ("native.py", "kernel_compilation.py")  # these only contain the word
    declaring = [path for path in sources if "@kernel(" in path.read_text("utf-8") and path.name not in others]
    assert {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in declaring} <= modules


def test_a_kernel_is_found_again_by_its_module_and_name() -> None:
    declare_kernels()
    names = [(kernel.function.__module__, kernel.name) for kernel in kernels if kernel.function.__module__ != __name__]
    ours = [name for name in names if name[0].split(".")[0] in ("capture", "lowlevel", "highlevel")]
    assert len(set(ours)) == len(ours)


@pytest.mark.slow("processes that compile kernels")
def test_several_processes_compile_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_kernels()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = [kernel for kernel in kernels if kernel.name in ("take_byte", "find_pattern", "clear_failed_rows")]
    assert len(chosen) == 3
    progress: list[int] = []
    compile_into_cache(chosen, progress.append)
    assert [kernel.stored() is not None for kernel in chosen] == [True] * 3
    assert progress == ([1, 2, 3] if len(os.sched_getaffinity(0)) > 1 else [0, 1, 2])


@pytest.mark.slow("processes that compile kernels")
def test_processes_that_cannot_store_machine_code_end_the_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_kernels()
    (tmp_path / "wiretide").write_text("a file where the folder of the cache should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = [kernel for kernel in kernels if kernel.name in ("take_byte", "find_pattern", "clear_failed_rows")]
    compile_into_cache(chosen, lambda done: None)
    assert [kernel.stored() for kernel in chosen] == [None] * 3


def test_the_kinds_of_the_command_line_are_those_of_queries() -> None:
    assert tuple(Kind) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_describes_each_column(kind: str) -> None:
    rows = row_kind_of(kind)
    header, *lines = column_lines(rows)
    assert header.split() == list(HEADER)
    assert [line.split()[0] for line in lines] == [rows.find(name).name for name in rows.listed_names]  # type: ignore[union-attr]
    assert {line.split()[0] for line in column_lines(rows, with_all_columns=True)} > {line.split()[0] for line in lines}


def test_the_command_lists_kinds_and_columns_and_names_the_kinds_for_a_wrong_one() -> None:
    assert run("columns").stdout.splitlines()[-1] == "wiretide columns KIND lists the columns of one kind."
    assert run("columns", "flows").stdout.splitlines() == column_lines(row_kind_of("flows"))
    wrong = run("columns", "packet", COLUMNS="200")
    assert wrong.returncode == 2
    assert all(kind in wrong.stderr for kind in KINDS)


@pytest.mark.spark  # java -version
def test_the_doctor_names_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    checked = run("doctor", XDG_CACHE_HOME=str(tmp_path))
    assert (checked.returncode, checked.stderr) == (0, "")
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in checked.stdout.splitlines()}
    assert list(lines)[:5] == ["python", "cores", "kernels", "java", "interfaces"]
    result, detail = lines["kernels"]
    assert result == "missing"
    assert "wiretide doctor --compile" in detail
