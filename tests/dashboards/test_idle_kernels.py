"""Which kernels a run compiles beforehand. A kernel that is left out but called causes a silent wait of seconds."""

import gzip
from pathlib import Path

import pytest

from capture import native
from capture.kernel_compilation import declare_kernels
from capture.native import Kernel
from dashboards.idle_kernels import KERNELS_BY_FORMAT, KINDS_BY_MODULE, IdleKernels
from highlevel.inline.engine import InlineRun
from lowlevel.rows import flows as flow_reader
from lowlevel.rows import samples as sample_reader
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

DECLARING = flow_reader, sample_reader
"""Modules that no other import loads, so that all kernels are declared in every order of the tests."""

CONTENT = pcap_bytes([(NS, udp("10.0.0.1", "10.0.0.2", 1, 2))] * 50, RAW_IP)


@pytest.mark.parametrize("kind", ["packets", "frames", "flows", "samples"])
@pytest.mark.parametrize("name", ["a.pcap", "a.pcap.gz"])
def test_no_idle_kernel_is_called(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(gzip.compress(CONTENT) if name.endswith("gz") else CONTENT)
    plan = compile_query(f"SELECT count(*) AS n FROM {kind} WHERE ts > 0")
    run = InlineRun([plan], bind_files([str(tmp_path / name)]))
    idle = IdleKernels(run)
    called: set[str] = set()
    call = Kernel.at

    def noted(self: Kernel, *arguments: float) -> int:
        called.add(self.name)
        return call(self, *arguments)

    monkeypatch.setattr(Kernel, "at", noted)
    assert sum(1 for _ in run.results()) == (kind in ("packets", "frames"))
    assert called
    assert {each.name for each in native.kernels if idle(each)} & called == set()


def test_kernels_of_other_formats_and_kinds_are_idle(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(CONTENT)
    run = InlineRun([compile_query("SELECT count(*) FROM packets")], bind_files([str(tmp_path)]))
    idle = {each.name for each in native.kernels if IdleKernels(run)(each)}
    assert {"decode_pcapng", "scan_pcapng", "decode_listed", "list_samples", "cut_rows"} <= idle
    assert {"filter_times", "find_pattern", "match_start", "take_byte"} <= idle
    assert (
        idle & {"decode_pcap", "scan_blocks", "find_plausible_chain", "update_table", "flush_table", "pack_word"}
        == set()
    )


def test_groups_without_texts_number_none(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(CONTENT)
    for keys, expected in (("srcIP, destPort", True), ("link, srcIP", False)):
        plan = compile_query(f"SELECT {keys}, count(*) FROM packets GROUP BY {keys}")
        idle = IdleKernels(InlineRun([plan], bind_files([str(tmp_path)])))
        assert {idle(each) for each in native.kernels if each.name == "number_strings"} == {expected}


def test_keys_that_were_seen_are_stored_by_kernels(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(CONTENT)
    for condition, expected in (("seen_within('1 minute', srcIP = destIP)", False), ("len > 0", True)):
        plan = compile_query(f"SELECT count(*) AS n FROM packets WHERE {condition}")
        idle = IdleKernels(InlineRun([plan], bind_files([str(tmp_path)])))
        assert {idle(each) for each in native.kernels if each.name == "look_up_and_store"} == {expected}


def test_what_a_search_and_a_slack_need_is_not_idle(tmp_path: Path) -> None:
    (tmp_path / "a.pcap.gz").write_bytes(gzip.compress(CONTENT))
    plan = compile_query("SELECT count(*) FROM packets WHERE contains(inner.payload, 'GET')")
    run = InlineRun([plan], bind_files([str(tmp_path)]), slack=NS)
    idle = {each.name for each in native.kernels if IdleKernels(run)(each)}
    assert idle & {"filter_times", "find_pattern"} == set()


def test_names_of_kernels_and_modules_exist(tmp_path: Path) -> None:
    """A name that no kernel has any more would let a first run compile kernels that it does not use."""
    declare_kernels()
    names = {kernel.name for kernel in native.kernels}
    modules = {kernel.function.__module__ for kernel in native.kernels}
    assert {name for kernels in KERNELS_BY_FORMAT.values() for name in kernels} <= names
    assert [prefix for prefix in KINDS_BY_MODULE if not any(module.startswith(prefix) for module in modules)] == []
    (tmp_path / "a.pcap").write_bytes(CONTENT)
    run = InlineRun([compile_query("SELECT count(*) AS n FROM packets")], bind_files([str(tmp_path / "a.pcap")]))
    unused = IdleKernels(run).unused
    assert len(unused) == 5
    assert unused <= modules
