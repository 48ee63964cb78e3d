"""The promises of the test run itself, seen from outside: runs of pytest over small test files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, source: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in `source` the way the project's own run."""
    (folder / "test_it.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        folder,
    ]
    options = ["-v", "-o", f"cache_dir={folder / 'cache'}", *(words or [folder / "test_it.py"])]
    return subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, env=os.environ | environ)


def test_a_test_without_the_mark_fails_when_a_child_of_it_starts_java(tmp_path: Path) -> None:
    source = "import subprocess\ndef test_a():\n    subprocess.run(['sh', '-c', 'java -version || true'])\n"
    answer = run(tmp_path, source)
    assert answer.returncode == 1
    assert "is not marked `spark` but started a JVM: java -version" in answer.stdout


def test_tests_with_the_mark_run_last_in_every_random_order(tmp_path: Path) -> None:
    source = "import pytest\n" + "".join(
        f"{'@pytest.mark.spark' if n % 2 else ''}\ndef test_{'jvm' if n % 2 else 'fast'}_{n}(): pass\n"
        for n in range(20)
    )
    answer = run(tmp_path, source)
    order = [line.split("::test_")[1].partition("_")[0] for line in answer.stdout.splitlines() if "::test_" in line]
    assert order == ["fast"] * 10 + ["jvm"] * 10
    assert "Using --randomly-seed=" in answer.stdout


@pytest.mark.slow("several runs of pytest")
def test_of_several_processes_one_has_all_files_that_use_the_session(tmp_path: Path) -> None:
    """And it begins with their marked tests; a test without the mark does not see the session."""
    for number in range(3):
        (tmp_path / f"test_jvm_{number}.py").write_text(
            "import pytest\nfrom pyspark import SparkContext\n"
            "@pytest.fixture(scope='session')\ndef spark(): SparkContext._gateway = 'open'\n"
            "@pytest.mark.spark\ndef test_marked(spark): assert SparkContext._gateway == 'open'\n"
            "def test_unmarked(): assert SparkContext._gateway is None\n"
        )
    answer = run(tmp_path, "".join(f"def test_{n}(): pass\n" for n in range(9)), "-n", "2", str(tmp_path))
    assert "15 passed" in answer.stdout
    told = [line.split() for line in answer.stdout.splitlines() if "PASSED" in line]
    tests = {worker: [test.rpartition("/")[2] for of, *_, test in told if of == worker] for worker, *_ in told}
    assert len(tests) == 2
    with_session, others = sorted(tests.values(), key=lambda names: names[0].startswith("test_it"))
    assert [name.partition("::")[2] for name in with_session] == ["test_marked"] * 3 + ["test_unmarked"] * 3
    assert {name.partition("::")[0] for name in others} == {"test_it.py"}


def test_missing_captures_are_a_skip_that_says_where_they_were_looked_for(tmp_path: Path) -> None:
    answer = run(tmp_path, "def test_a(captures): pass\n", WIRETIDE_CAPTURES=str(tmp_path / "nowhere"))
    assert f"no captures in {tmp_path / 'nowhere'}" in answer.stdout
    assert "1 skipped" in answer.stdout


def test_a_slow_test_without_a_reason_is_refused(tmp_path: Path) -> None:
    answer = run(tmp_path, "import pytest\n@pytest.mark.slow\ndef test_a(): pass\n")
    assert "got @pytest.mark.slow(), expected one reason" in answer.stdout + answer.stderr
    assert answer.returncode != 0


def test_quick_leaves_out_slow_tests_tests_of_spark_and_nine_of_ten_seeds(tmp_path: Path) -> None:
    source = (
        "import pytest\n@pytest.mark.slow('many processes')\ndef test_a(): pass\n"
        "@pytest.mark.spark\ndef test_b(): pass\ndef test_c(): pass\n"
        "@pytest.mark.parametrize('seed', range(12))\ndef test_d(seed): assert seed in (0, 10)\n"
        "@pytest.mark.parametrize('name', 'xyz')\ndef test_e(name): pass\n"
    )
    assert "6 passed, 12 deselected" in run(tmp_path, source, "--quick", str(tmp_path)).stdout


def test_one_seed_or_parameter_set_of_five_is_drawn_and_all_of_them_on_request(tmp_path: Path) -> None:
    source = (
        "import pytest\n@pytest.mark.parametrize('seed', range(12))\ndef test_a(seed): pass\n"
        "def test_b(rounds): print('drawn', *rounds(12))\n"
        "@pytest.mark.drawn\n@pytest.mark.parametrize('name', 'stuvwxyz')\ndef test_c(name): pass\n"
    )
    for option, drawn, counts in (
        ((), "0 5 10", "6 passed, 15 deselected"),
        (("--share", "6"), "0 6", "5 passed, 16 deselected"),
        (("--soak",), " ".join(map(str, range(12))), "21 passed"),
    ):
        answer = run(tmp_path, source, "-s", *option, str(tmp_path)).stdout
        assert f"drawn {drawn}\n" in answer
        assert counts in answer


def test_a_warning_is_an_error(tmp_path: Path) -> None:
    answer = run(tmp_path, "import warnings\ndef test_a(): warnings.warn('old', DeprecationWarning)\n")
    assert "1 failed" in answer.stdout
