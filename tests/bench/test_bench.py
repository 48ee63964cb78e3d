"""What `python -m bench` promises to whoever reads its output: the protocol, never a speed.

A wrong exit status or a criterion that is lost on the way hides a regression from CI; that is what these tests catch.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from bench import __main__ as command_line
from bench.figure import figure, quotient
from bench.report import Criterion, Report
from bench.setting import Setting
from bench.traffic import address_pairs, generate_cached
from bench.undisturbed import ATTEMPTS, StepTime, run_undisturbed
from lowlevel.rows.batches import row_batches

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m bench` as a user does."""
    return subprocess.run([sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_every_bench_is_listed_with_what_it_measures() -> None:
    listed = bench("--list")
    assert (listed.returncode, listed.stderr) == (0, "")
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names == list(command_line.BENCHES)
    assert {"decode", "query", "peers", "spark", "startup"} <= set(names)


def test_every_listed_bench_is_a_module_with_a_run() -> None:
    for name in command_line.BENCHES:
        assert "\ndef run(setting: Setting) -> Report:" in (ROOT / "bench" / f"{name.lower()}.py").read_text("utf-8")


def test_an_unknown_bench_is_refused_with_the_known_names() -> None:
    refused = bench("decode", "sped")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "sped" in refused.stderr
    assert ", ".join(command_line.BENCHES) in refused.stderr


@pytest.mark.slow("a bench measures in processes of its own")
def test_a_smoke_run_prints_the_tables_of_each_bench_and_then_one_json_line_per_criterion(tmp_path: Path) -> None:
    ran = bench("--quick", "decode", "startup", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("machine: ")
    marks = [ran.stdout.index(title) for title in ("decode: 100,000 packets", "startup: from the start of the process")]
    assert marks[0] < ran.stdout.index('{"bench": "decode"') < marks[1]
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [each["bench"] for each in criteria] == ["decode"] * 4 + ["startup"] * 2
    assert re.findall(r"in short: \| (.+) \| .+ \|", ran.stdout)[0] == "decode + table, one core"
    for each in criteria:
        assert set(each) - {"why"} == {"bench", "criterion", "measured", "target", "pass"}
        assert re.fullmatch(r"(>=|<=) \d+(\.\d+)?", each["target"])
        assert each["pass"] is None
        assert each["why"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".pcap"] * 2


@pytest.mark.slow("a bench measures in processes of its own")
def test_a_smoke_run_of_query_judges_that_the_first_run_says_why_it_takes_long(tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("--soak: it compiles all kernels twice")
    ran = bench("--quick", "query", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(criteria) == 8
    wholes = [each["criterion"] for each in criteria if each["criterion"].startswith("whole process")]
    assert [name.split(", ")[1] for name in wholes] == ["one core", "default threads"] * 2
    assert len(re.findall("information, not judged: whole process, ", ran.stdout)) == 4
    assert "in short: | very first run, kernels compiled |" in ran.stdout
    judged = [each["criterion"] for each in criteria if each["pass"] is not None]
    assert judged == ["first run, lines that say why"]


@pytest.mark.slow("a bench measures in processes of its own")
def test_the_same_packets_are_measured_in_both_containers(tmp_path: Path) -> None:
    ran = bench("--quick", "pcapng", "--data", tmp_path)
    assert (ran.returncode, "do not hold the same" in ran.stdout) == (0, False), ran.stderr
    classic, anew = (row_batches(path, ["ts", "srcIP", "destIP", "len"]) for path in sorted(tmp_path.iterdir()))
    assert pa.Table.from_batches(classic).equals(pa.Table.from_batches(anew))


@pytest.mark.slow("a bench measures in processes of its own")
def test_a_smoke_run_of_watchlist_lists_every_source(tmp_path: Path) -> None:
    ran = bench("--quick", "watchlist", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(each["target"], each["pass"]) for each in criteria] == [("<= 2", None), ("<= 3.5", None), ("<= 1", None)]


@pytest.mark.slow("a bench measures in processes of its own")
def test_several_queries_are_measured_with_the_tables_that_they_have(tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("--soak: it runs a hundred queries in a hundred processes")
    ran = bench("--quick", "several", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    rows = {
        line.split("  ")[1]: re.split(" {2,}", line)[-2:] for line in ran.stdout.splitlines() if "quer" in line[:30]
    }
    assert rows["five different queries"] == ["5", "4, 4, 3, 8, 3"]
    assert rows["five queries of one table"] == ["1", "8"]
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(each["target"], each["pass"]) for each in criteria] == [
        (f"<= {seconds}", None) for seconds in (4.5, 2.2, 15, 15, 3.5, 8, 0.4)
    ]
    assert "information, not judged: one query by address pair, one core, M packets/s" in ran.stdout


@pytest.mark.slow("a bench measures in processes of its own")
def test_every_codec_is_measured_and_two_are_judged(tmp_path: Path) -> None:
    ran = bench("--quick", "compressed", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(each["criterion"].partition(":")[0], each["target"]) for each in criteria] == [
        ("gzip", ">= 0.65"),
        ("zstd", ">= 0.65"),
    ]
    packed = [path for path in tmp_path.iterdir() if path.suffix != ".pcap"]
    assert len(packed) == 5
    for path in packed:
        one, other = (pa.Table.from_batches(row_batches(each, ["ts"])) for each in (path, path.with_suffix("")))
        assert one.equals(other)


@pytest.mark.slow("a bench measures in processes of its own")
def test_a_spool_is_measured_against_plain_arrow_and_leaves_no_files_behind(tmp_path: Path) -> None:
    ran = bench("--quick", "spool", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [path.suffix for path in tmp_path.iterdir()] == [".pcap"]
    rows = {
        cells[0]: cells[1:] for line in ran.stdout.splitlines() if len(cells := re.split(" {2,}", line.strip())) > 1
    }
    plain, spooled = rows["plain Arrow, written"], rows["spool, written"]
    assert float(spooled[1]) < float(plain[1])
    sizes = [float(cells[0]) for name, cells in rows.items() if name.startswith("narrowed")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 4
    assert float(spooled[1]) < sizes[0]
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(each["target"], each["pass"]) for each in criteria] == [
        *[(">= 0.5", None)] * 2, ("<= 0.5", None), ("<= 10", None), ("<= 0.5", None), ("<= 0.1", None)
    ]  # fmt: skip
    assert all(each["measured"] > 0 for each in criteria)


@pytest.mark.parametrize(
    ("measured", "target", "judged", "passed"),
    [
        (25.0, ">= 25", True, True),
        (24.9, ">= 25", True, False),
        (600.0, "<= 600", True, True),
        (601.0, "<= 600", True, False),
        (1.0, ">= 25", False, None),
        (None, "<= 600", True, None),
    ],
)
def test_a_criterion_is_judged_by_its_target(
    measured: float | None, target: str, judged: bool, passed: bool | None
) -> None:
    report = Report("x")
    report.add_criterion("a figure", measured, target, judged)
    (criterion,) = report.criteria
    assert criterion.passed is passed
    told = json.loads(criterion.line())
    assert (told["pass"], told["target"], "why" in told) == (passed, target, passed is None)


def test_the_exit_status_is_1_when_a_criterion_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(value: float) -> Report:
        return Report("x", criteria=[Criterion("x", "speed", value, ">=", 2)])

    for value, status in ((1.0, 1), (2.0, 0)):
        monkeypatch.setattr(command_line, "run", lambda name, setting, value=value: measured(value))
        assert command_line.main(["startup", "--data", str(tmp_path)]) == status
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["pass"] is (status == 0)


def test_a_run_that_is_interrupted_has_printed_the_verdicts_of_the_benches_that_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(name: str, setting: Setting) -> Report:
        if name == "X3":
            raise KeyboardInterrupt
        return Report(name, criteria=[Criterion(name, "speed", 1.0, ">=", 2)])

    monkeypatch.setattr(command_line, "run", measured)
    with pytest.raises(KeyboardInterrupt):
        command_line.main(["X1", "X2", "X3", "--data", str(tmp_path)])
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(each["bench"], each["pass"]) for each in results] == [("X1", False), ("X2", False)]


def test_a_failed_criterion_of_the_first_bench_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measured(name: str, setting: Setting) -> Report:
        return Report(name, criteria=[Criterion(name, "speed", 1.0 if name == "X1" else 3.0, ">=", 2)])

    monkeypatch.setattr(command_line, "run", measured)
    assert command_line.main(["X1", "X2", "--data", str(tmp_path)]) == 1
    assert command_line.main(["X2", "--data", str(tmp_path)]) == 0


def test_a_ratio_is_the_median_of_the_turns_so_that_a_slow_phase_of_the_machine_cancels_out() -> None:
    step, copy = figure([1.0, 1.1, 30.0, 33.0, 36.0]), figure([0.5, 0.5, 15.0, 15.0, 15.0])
    assert quotient(step, copy).median == pytest.approx(2.2)
    with pytest.raises(ValueError, match="shorter"):
        quotient(step, figure([0.5]))


def test_a_table_lines_up_its_columns() -> None:
    report = Report("x", notes=["a note"])
    report.table("title", ("step", "rate"), [("scan", "1"), ("decode", "22")])
    assert report.text().splitlines() == [
        *("", "x: title", "  step    rate", "  ------  ----", "  scan    1", "  decode  22", "  a note")
    ]


def test_a_rate_is_the_median_of_rates() -> None:
    assert figure([2.0, 1.0, 4.0]).rate(8).median == 4.0


def test_a_run_that_others_disturbed_is_made_again() -> None:
    runs = iter([StepTime(3, 1), StepTime(2, 1), StepTime(1, 1), StepTime(0.5, 0.5)])
    assert run_undisturbed(lambda: next(runs)) == (StepTime(1, 1), 2)


def test_of_runs_that_were_all_disturbed_the_least_disturbed_counts() -> None:
    runs = iter([StepTime(4, 1), StepTime(2, 1), *[StepTime(3, 1)] * (ATTEMPTS - 2)])
    assert run_undisturbed(lambda: next(runs)) == (StepTime(2, 1), ATTEMPTS - 1)


def test_a_capture_is_generated_once_and_named_by_its_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = generate_cached(address_pairs(1000), tmp_path)
    assert "generating 1,000 packets" in capsys.readouterr().err
    written = first.stat().st_mtime_ns
    assert generate_cached(address_pairs(1000), tmp_path) == first
    assert (first.stat().st_mtime_ns, capsys.readouterr().err) == (written, "")
    assert generate_cached(address_pairs(1000, ipv6=0.5), tmp_path) != first


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"got .* GB free, expected 19200000\.0 GB"):
        generate_cached(address_pairs(2 * 10**14), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_smoke_run_is_small_and_a_full_one_is_not(tmp_path: Path) -> None:
    assert [Setting(tmp_path, quick).packets(5_000_000) for quick in (True, False)] == [100_000, 5_000_000]
    assert [Setting(tmp_path, quick).runs(7) for quick in (True, False)] == [1, 7]


@pytest.mark.slow("a bench measures in processes of its own")
def test_a_smoke_run_of_rollup_says_how_each_window_is_made(tmp_path: Path) -> None:
    ran = bench("--quick", "rollup", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    rows = [re.split(" {2,}", line.strip()) for line in ran.stdout.splitlines() if " minute" in line[:80]]
    hours = [row[-1] for row in rows if "an hour by minutes" in row]
    assert hours == ["RUNNING_TOTALS"] * 2 + ["TWO_STACKS"] * 2
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(each["target"], each["pass"]) for each in criteria] == [
        (target, None) for target in (">= 1.2", "<= 1.5", "<= 1.05", "<= 64")
    ]


@pytest.mark.slow("a bench measures in processes of its own")
def test_a_smoke_run_of_sessions_tells_what_is_promised_of_them(tmp_path: Path) -> None:
    ran = bench("--quick", "sessions", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "100,000 partials of 100,000 sessions per 5-tuple, 100,000 open at most" in ran.stdout
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(each["target"], each["pass"]) for each in criteria] == [(">= 0.5", None)]


@pytest.mark.slow("starts a browser")
def test_a_smoke_run_of_the_page_measures_and_judges_nothing(tmp_path: Path) -> None:
    ran = bench("--quick", "page", "--data", tmp_path)
    assert ran.returncode == 0, ran.stderr
    criteria = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    judged = [(each["target"], each["pass"]) for each in criteria]
    assert judged == [("<= 1000", None), (">= 58", None), ("<= 100", None)]
    if shutil.which("chromium"):
        assert all(each["measured"] > 0 for each in criteria)
