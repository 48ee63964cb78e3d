"""Modules that the command line imports before it has parsed its arguments.

It can catch an import at the top of a module of the command line that makes every `--help` slow.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import wiretide

HEAVY = {"numpy", "pyarrow", "pandas", "numba", "llvmlite", "sqlglot", "scapy", "dpkt", "pyspark", "rich", "highlevel"}

SCRIPT = """
import sys
import wiretide
sys.argv = ["wiretide", *sys.argv[1:]]
try:
    wiretide.main()
except SystemExit:
    pass
print("\\n" + " ".join(sorted({name.split(".")[0] for name in sys.modules})))
"""


def imported(*words: str) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, *words]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(wiretide.__file__).parent)
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["query", "--help"], ["run", "--help"], ["demo", "--help"]]
)
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    assert imported(*words) & HEAVY == set()


def test_a_wrong_option_is_an_error_before_anything_heavy_is_imported() -> None:
    assert imported("query", "--nothing") & HEAVY == set()
