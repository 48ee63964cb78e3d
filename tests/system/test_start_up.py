"""Modules that the command line imports: before it has parsed its arguments, and for a plain query.

It can catch an import at the top of a module that makes every `--help`, or every short query, slow. It can also catch
threads of numpy that no query uses.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wiretide
from tests.harness.links import write_links

HEAVY = {"numpy", "pyarrow", "pandas", "numba", "llvmlite", "sqlglot", "scapy", "dpkt", "pyspark", "rich", "highlevel"}

SCRIPT = """
import sys
import wiretide
sys.argv = ["wiretide", *sys.argv[1:]]
try:
    wiretide.main()
except SystemExit:
    pass
print("\\n" + " ".join(sorted(sys.modules)))
"""

COUNT_THREADS = (
    SCRIPT
    + """
import os
print("numpy" in sys.modules, len(os.listdir("/proc/self/task")))
"""
)

MOST_MODULES = 260
"""Largest number of modules of this project that a plain query imports. Each takes about 0.2 ms."""

PACKAGES = {"numpy", "pyarrow", "cython_runtime"}
"""Other packages that a plain query may import: two, and the runtime of Cython, which some versions of them import."""

FOLDERS = {"capture", "lowlevel", "highlevel", "queries", "dashboards", "wiretide"}

RARE = {
    *("numba", "llvmlite", "pandas", "pyarrow.compute", "queries.catalogue", "queries.text.script", "queries.explain"),
    *("fractions", "lowlevel.watch.timed_files", "lowlevel.watch.leases"),
    *("queries.plans.joins", "queries.plans.correlated", "queries.plans.set_operations", "queries.plans.sample"),
    *(
        "queries.plans.revisions",
        "queries.binding.functions",
        "highlevel.inline.table_sources",
        "dashboards.output.table",
    ),
    *("json", "difflib", "bz2", "lzma"),
    *("queries.pipeline.spark_settings", "capture.flows.kernels.datagrams", "lowlevel.spool", "highlevel.spark"),
}
"""Modules that a query of packets with groups does not need."""


def modules(*words: str | Path) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, *words]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(wiretide.__file__).parent)
    return set(run.stdout.splitlines()[-1].split())


def count_threads(of_numpy: str | None) -> int:
    """Return the threads of a process that has imported numpy. `of_numpy` is their number in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment |= {"OPENBLAS_NUM_THREADS": of_numpy} if of_numpy else {}
    command = [sys.executable, "-c", COUNT_THREADS, "explain", "SELECT count(*) FROM packets"]
    folder = Path(wiretide.__file__).parent
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    imported_numpy, threads = run.stdout.splitlines()[-1].split()
    assert imported_numpy == "True"
    return int(threads)


def imported(*words: str) -> set[str]:
    return {name.split(".")[0] for name in modules(*words)}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list the threads of a process")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="numpy starts a thread per core")
def test_numpy_starts_no_threads_unless_the_environment_states_their_number() -> None:
    assert count_threads(None) == count_threads("1") == count_threads("2") - 1


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["query", "--help"], ["run", "--help"], ["demo", "--help"]]
)
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    assert imported(*words) & HEAVY == set()


def test_a_wrong_option_is_an_error_before_anything_heavy_is_imported() -> None:
    assert imported("query", "--nothing") & HEAVY == set()


def test_a_plain_query_imports_only_its_command_and_no_part_for_rare_queries(tmp_path: Path) -> None:
    path = write_links(tmp_path, 1)[0].path
    sql = "SELECT srcIP, count(*) FROM packets GROUP BY srcIP"
    used = modules("query", path, sql, "--format", "csv")
    assert "highlevel.sliding.aggregate" in used  # the query was answered
    assert used & RARE == set()
    assert {name for name in used if name.startswith("dashboards.commands.")} == {
        "dashboards.commands.app",
        "dashboards.commands.query",
    }
    own = {name for name in used if name.partition(".")[0] in FOLDERS}
    assert len(own) <= MOST_MODULES, sorted(own)
    others = {name.partition(".")[0] for name in used - own} - sys.stdlib_module_names
    assert {name for name in others if not name.startswith("_")} <= PACKAGES


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        ("wiretide qu", ["query", "queries"]),
        ("wiretide query --form", ["--format"]),
        ("wiretide query --format par", ["parquet"]),
    ],
)
def test_a_shell_completes_commands_options_and_values(words: str, choices: list[str]) -> None:
    requested = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_WIRETIDE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-c", "import sys, wiretide; sys.argv = ['wiretide']; wiretide.main()"]
    folder = Path(wiretide.__file__).parent
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=os.environ | requested)
    assert run.stdout.split() == choices, run.stderr


def test_a_file_of_functions_may_import_pandas_which_other_queries_do_not_load(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    path, functions = write_links(tmp_path, 1)[0].path, tmp_path / "functions.py"
    functions.write_text(
        "import pandas\nimport wiretide\n\n@wiretide.function\ndef half(x: int) -> int:\n    return x // 2\n"
    )
    used = modules("query", path, "SELECT max(half(len)) FROM packets", "--functions", functions)
    assert {"pandas", "highlevel.sliding.aggregate"} <= used


def test_the_program_ends_after_its_threads_and_exit_functions(tmp_path: Path) -> None:
    path = write_links(tmp_path, 1)[0].path
    program = """
import atexit, sys, threading
import wiretide
text = open(sys.argv.pop(1), "w")
def work():
    threading.main_thread().join()
    text.write("thread ")
    atexit.register(lambda: text.write("exit ") and text.close())
threading.Thread(target=work).start()
sys.argv[0] = "wiretide"
wiretide.run_program()
"""
    written = tmp_path / "written"
    query = ["query", path, "SELECT count(*) AS n FROM packets"]
    run = subprocess.run(
        [sys.executable, "-c", program, written, *query],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(wiretide.__file__).parent,
    )
    assert run.stdout.split()[0] == "n"
    assert written.read_text() == "thread exit "
