"""Flow templates in other files of the same link: a link is one recording with any file names.

The tests detect records that are lost because a file sorts before the file with its templates. They detect templates
from the wrong side of a file, records that are counted twice or become late, and answers that differ between engines.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from capture.files.capture import Capture
from capture.files.scan import scan
from capture.metrics import FLOW_SETS_WAITING, Samples
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from tests.references.netflow_bytes import Spec, a_set, ipfix, template, v9, v9_options
from tests.references.netflow_captures import NetflowTruth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = """SELECT version, observation_domain, count(*) AS n, sum(bytes) AS total
FROM flows GROUP BY version, observation_domain"""
MINUTES = """SELECT observation_domain, count(*) AS n, sum(bytes) AS total
FROM flows [RANGE 10 seconds, SLIDE 10 seconds, WA ts] GROUP BY observation_domain"""
LAYOUTS: list[list[Spec]] = [[(1, 4)], [(1, 8)], [(4, 1), (1, 4)], [(1, 2), (2, 2)]]


def answer(
    paths: Sequence[Path], query: str = ALL, threads: int = 1, slack: int | None = None
) -> tuple[Counter[Any], Samples]:
    """The rows of a query over files of one link."""
    run = InlineRun([compile_query(query)], [Input("link", path) for path in paths], 64, threads, slack)
    found: Counter[Any] = Counter()
    for _, batch in run.results():
        found.update(tuple(row.values()) for row in batch.to_pylist())
    return found, run.samples()


def written(folder: Path, contents: Sequence[bytes], names: Sequence[str]) -> list[Path]:
    """The files of a recording, sorted by name as a folder's are."""
    folder.mkdir()
    for content, name in zip(contents, names, strict=True):
        (folder / name).write_bytes(content)
    return sorted(folder.iterdir())


def recorded(random: Random, messages: int) -> list[bytes]:
    """Messages a second apart from three domains in two versions; each announces its templates only now and then."""
    layouts = {(version, domain): random.choice(LAYOUTS) for version in (9, 10) for domain in range(3)}
    found = []
    for second in range(messages):
        version, domain = random.choice(list(layouts))
        if random.random() < 0.05:
            layouts[version, domain] = random.choice(LAYOUTS)
            announced = True
        else:
            announced = random.random() < 0.12
        layout = layouts[version, domain]
        size = sum(spec[1] for spec in layout)
        sets = [a_set(256, random.randbytes(size * random.randrange(1, 4)))]
        if announced:
            sets.insert(0, a_set(0 if version == 9 else 2, template(256, layout)))
        head: dict[str, int] = {"seconds": 1_700_000_000 + second, "domain": domain}
        found.append(v9(sets, sequence=second, **head) if version == 9 else ipfix(sets, **head))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_files_of_a_link_under_any_names_are_read_as_one_file(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    messages = recorded(random, 120)
    cuts = [0, *sorted(random.sample(range(1, 120), random.randrange(1, 6))), 120]
    parts = [b"".join(messages[start:end]) for start, end in pairwise(cuts)]
    whole = written(tmp_path / "whole", [b"".join(messages)], ["all.dat"])
    names = [f"{number}.dat" for number in range(len(parts))]
    random.shuffle(names)
    files = written(tmp_path / "parts", parts, names)
    for query in (ALL, MINUTES):
        expected, once = answer(whole, query)
        assert expected
        for threads, slack in ((1, None), (3, None), (1, 2 * 10**9)):
            if slack is None or query == ALL:
                found, samples = answer(files, query, threads, slack)
                assert found == expected
                assert samples.total(FLOW_SETS_WAITING) == once.total(FLOW_SETS_WAITING)


def first_time(path: Path) -> tuple[int, str]:
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    return scan(capture).blocks[0].min_ts, path.name


def test_real_data_and_template_files_may_be_called_anything(captures: Path, tmp_path: Path) -> None:
    netflow_truth = NetflowTruth(captures / "netflow")
    cases = {name: case["files"] for name, case in netflow_truth.cases.items() if len(case["files"]) > 1}
    assert len(cases) > 20
    late = answered = 0
    for case, names in cases.items():
        folder = netflow_truth.folder / "datagrams"
        ordered = sorted((folder / name for name in names), key=first_time)
        contents = [path.read_bytes() for path in ordered]
        (whole,) = written(tmp_path / f"{case} whole", [b"".join(contents)], ["all.dat"])
        expected, _ = answer([whole])
        answered += bool(expected)  # some cases contain option records only
        late += next(iter(ordered)).name != names[0]
        for turn in ("abcde", "edcba"):
            # Two files of the same second are ordered by name, so only one of the turns keeps such a case in order.
            times = [first_time(path)[0] for path in ordered]
            if turn == "edcba" and len(set(times)) < len(times):
                continue
            files = written(tmp_path / f"{case} {turn}", contents, list(turn[: len(contents)]))
            assert answer(files)[0] == expected, (case, turn)
    assert answered > 25
    assert late  # some templates were sent after their data


def test_records_wait_for_a_later_file_and_are_not_late(tmp_path: Path) -> None:
    layout = LAYOUTS[0]
    data = [v9([a_set(256, struct.pack(">I", 7))], seconds=1_700_000_000 + 60 * each) for each in range(20)]
    known = [v9([a_set(0, template(257, layout)), a_set(257, bytes(4))], seconds=1_700_000_030 + 60 * each)
             for each in range(20)]  # fmt: skip
    mixed = b"".join(message for pair in zip(data, known, strict=True) for message in pair)
    later = v9([a_set(0, template(256, layout))], seconds=1_700_009_999)
    files = written(tmp_path / "link", [mixed, later], ["a.dat", "b.dat"])
    found, samples = answer(files, MINUTES, slack=10**9)
    assert sum(found.values()) == 40
    assert samples.total(FLOW_SETS_WAITING) == 0
    alone, samples = answer(files[:1], MINUTES, slack=10**9)
    assert sum(alone.values()) == 20
    assert samples.total(FLOW_SETS_WAITING) == 20


def test_a_template_withdrawn_in_an_earlier_file_is_not_used(tmp_path: Path) -> None:
    first = ipfix([a_set(2, template(256, LAYOUTS[0]))], seconds=1) + ipfix(
        [a_set(2, struct.pack(">HH", 256, 0))], seconds=2
    )
    second = ipfix([a_set(256, bytes(4))], seconds=3)
    found, samples = answer(written(tmp_path / "link", [first, second], ["a.dat", "b.dat"]))
    assert not found
    assert samples.total(FLOW_SETS_WAITING) == 1


@pytest.mark.parametrize("names", [("a.dat", "b.dat"), ("b.dat", "a.dat")])
def test_a_sampling_rate_of_another_file_holds_with_its_template(tmp_path: Path, names: tuple[str, str]) -> None:
    announced = v9(
        [a_set(0, template(256, [(1, 4)])), a_set(1, v9_options(300, [(1, 4)], [(34, 4)])),
         a_set(300, struct.pack(">II", 0, 10))], seconds=100,
    )  # fmt: skip
    for seconds in (50, 150):
        data = v9([a_set(256, struct.pack(">I", 3))], seconds=seconds)
        files = written(tmp_path / f"{seconds}", [announced, data], names)
        found, _ = answer(files, "SELECT sum(bytes) AS total, count(*) AS n FROM flows")
        assert found == Counter([(30, 1)])


def test_links_of_other_names_lend_no_templates(tmp_path: Path) -> None:
    data = v9([a_set(256, bytes(4))], seconds=2)
    announced = v9([a_set(0, template(256, LAYOUTS[0]))], seconds=1)
    files = written(tmp_path / "links", [announced, data], ["a.dat", "b.dat"])
    run = InlineRun([compile_query(ALL)], [Input(path.stem, path) for path in files], 64, 1)
    assert not list(run.results())
    assert run.samples().total(FLOW_SETS_WAITING) == 1


@pytest.mark.spark
def test_a_batch_of_spark_reads_a_link_as_one_recording(spark: SparkSession, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch

    messages = recorded(Random(5), 90)
    parts = [b"".join(messages[start : start + 30]) for start in (0, 30, 60)]
    files = written(tmp_path / "parts", parts, ["b.dat", "c.dat", "a.dat"])
    table = run_batch(spark, compile_query(ALL), [Input("link", path) for path in files])
    rows = Counter(tuple(row.values()) for row in table.to_pylist())
    assert rows == answer(written(tmp_path / "whole", [b"".join(messages)], ["all.dat"]))[0]
