"""A smoke run of every fuzz target (`tests.fuzz`), without atheris and without guidance.

* The tests run the seeds, the inputs that once failed, and a few hundred mutations. They detect a bug that was fixed
  before, and a target that no longer fits its module.
* A short guided run, if atheris is installed, detects a target that cannot start.
* A kernel that does read outside its arrays, and one whose lives differ, prove that the targets would see it.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from capture import native
from capture.native import Kernel, kernel
from capture.packets.link_layers import LINK_TYPES
from tests.fuzz import __main__ as runs
from tests.fuzz.mutate import inputs
from tests.fuzz.plain import both, run_plain
from tests.fuzz.targets import CORPUS, TARGETS

COUNT = {"sql": 150}
"""Mutated inputs of a target, where they are not 300."""


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_seeds_break_nothing(name: str) -> None:
    target = TARGETS[name]
    check = target.load().check
    seeds = [path.read_bytes() for path in target.corpus()]
    assert len(seeds) >= 8
    for number, data in enumerate(inputs(seeds, COUNT.get(name, 300), 1, target.longest)):
        try:
            check(data)
        except Exception as error:
            error.add_note(f"input {number} of the target {name}: {data!r}")
            raise


@pytest.mark.slow("instruments all modules in processes of their own")
def test_a_guided_run_compares_plain_python_that_is_instrumented_with_the_machine_code_of_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = Path(sys.prefix) / "fuzz" / "lib"
    if not (library / "atheris").exists():
        pytest.skip(f"atheris is not installed in {library}: make fuzz does it")
    monkeypatch.setenv("PYTHONPATH", str(library))
    monkeypatch.setattr(runs, "SCRATCH", tmp_path)
    monkeypatch.setattr(runs, "FOUND", tmp_path)
    monkeypatch.setattr(runs, "KERNELS", tmp_path / "kernels.json")
    targets = [TARGETS[name] for name in ("pcapng", "sql")]  # without a dictionary, and with one
    runs.prepare()
    outcomes = [runs.run(target, 300, 0) for target in targets]
    assert [outcome.failed for outcome in outcomes] == [False, False], [runs.describe(each) for each in outcomes]
    assert all(outcome.inputs >= 300 and outcome.edges > 100 for outcome in outcomes), outcomes


def test_every_target_has_seeds_that_are_small_and_no_others() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(TARGETS)
    sizes = {path: path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()}
    assert {path: size for path, size in sizes.items() if size > 4096} == {}


def test_every_link_type_is_fuzzed() -> None:
    assert set(LINK_TYPES) <= set(TARGETS["frames"].load().CHOICES)


@pytest.fixture
def _no_new_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernels", list(native.kernels))


@pytest.mark.parametrize("place", [-1, 4])
@pytest.mark.usefixtures("_no_new_kernels")
def test_a_kernel_that_reads_or_writes_outside_its_arrays_is_seen(place: int) -> None:
    def reads(values, place):
        return values[place]

    def writes(values, place):
        values[place] = 7
        return 0

    for function in (reads, writes):
        with pytest.raises(IndexError, match=f"at {place} of 4"):
            run_plain(Kernel(function, "i64(i64*, i64)"), np.arange(4), place)
    with pytest.raises(IndexError, match=f"read at {place} of 4"):
        run_plain(Kernel(reads, "i64(u8*, i64)"), np.frombuffer(b"abcd", np.uint8), place)


@pytest.mark.usefixtures("_no_new_kernels")
def test_a_kernel_whose_lives_differ_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    one = kernel("i64(i64)")(lambda value: value)
    monkeypatch.setattr(one, "_native", lambda value: value + 1)
    assert both(lambda plain: one(5)) == (6, 5)


@pytest.mark.usefixtures("_no_new_kernels")
def test_an_address_in_place_of_an_array_is_refused() -> None:
    with pytest.raises(TypeError, match="got an address"):
        run_plain(Kernel(lambda values: 0, "i64(i64*)"), 4711)
