"""A run that continues starts while a file of arcs or a watchlist is wrong or missing, with its last valid copy.

Finds: a restart that is refused although the run has a copy, a first start that is not refused, and a version that is
reported twice or not at all.
"""

from pathlib import Path

import pytest

from capture.errors import InputError
from dashboards.monitors.pipeline import Monitor
from highlevel.spark.run_folder.watched_copies import WatchedCopies
from lowlevel.metrics import WATCHLIST_FAILED
from queries.pipeline.file import read_pipeline
from queries.pipeline.sections import PipelineError
from tests.references.pcap_bytes import pcap_bytes
from tests.references.small_captures import udp

PIPELINE = """
folder = "state"
[links]
office = "office.pcap"
[queries.calls]
sql = '''SELECT match_end, rule FROM (SELECT ts, destIP FROM packets WHERE in_list(srcIP, 'own.txt')) AUTOMATON (
    ORDER BY ts REGISTER rule INT START idle FINAL called ARCS FROM 'calls.arcs' WITHIN 1 minute)'''
"""

FILES = {
    "calls.arcs": ("ARC idle TO called WHEN destIP = '10.0.0.2' SET rule = 1;", "\nARC idle WHEN", "line 2"),
    "own.txt": ("10.0.0.0/8\n", "10.0.0.0/8\n10.0.0.x\n", "line 2"),
}
"""For each file a valid version, a wrong one, and a part of its message."""


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_missing", [False, True])
def test_a_restart_uses_the_copy_of_a_wrong_file_and_reports_it_once(
    name: str, is_missing: bool, tmp_path: Path
) -> None:
    for file, (valid, *_) in FILES.items():
        (tmp_path / file).write_text(valid)
    (tmp_path / "office.pcap").write_bytes(
        pcap_bytes([(0, bytes(12) + b"\x08\x00" + udp("10.0.0.1", "10.0.0.2", 1, 2, 80))])
    )
    (tmp_path / "p.toml").write_text(PIPELINE)
    pipeline = read_pipeline(tmp_path / "p.toml")
    valid, wrong, message = FILES[name]

    def damage() -> None:
        (tmp_path / name).unlink()
        if not is_missing:
            (tmp_path / name).write_text(wrong)

    damage()
    with pytest.raises((PipelineError, InputError), match=name):
        Monitor(pipeline)
    (tmp_path / name).write_text(valid)
    pipeline.folder.mkdir(mode=0o700)
    WatchedCopies(Monitor(pipeline).plans, pipeline.folder, print).open()

    damage()
    said: list[str] = []
    copies = WatchedCopies(Monitor(pipeline).plans, pipeline.folder, said.append)
    copies.open()
    copies.refresh(0)
    copies.refresh(1)
    (line,) = said
    assert line.startswith(f"warning: {tmp_path / name}: ")
    assert line.endswith(("as it was", "as they were"))
    assert is_missing or message in line
    assert copies.samples.total(WATCHLIST_FAILED) == 1
    (bound,) = copies.bind(Monitor(pipeline).plans)
    assert bound == Monitor(pipeline).plans[0]

    (tmp_path / name).write_text(valid.replace("10.0.0.2", "10.0.0.3").replace("/8", "/9"))
    copies.refresh(2)
    assert said[-1].endswith("used from this micro-batch on")
