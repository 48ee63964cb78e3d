"""Kernels between processes: the cache, what harms it, and what is refused.

* Every harm to a cache file catches machine code or a symbol that is believed unseen, which would crash the process.
* Processes of their own catch an import of numba, a race between two compilers, and a folder that cannot be written.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from capture import native
from capture.kernel_cache import cache_folder
from capture.native import Integer, Integers, Kernel, helper, kernel, missing_kernels, pointer

ROOT = Path(__file__).resolve().parents[2]


@helper
def doubled(value):
    return value * 2


def sum_doubled(values, count):
    """Sum of twice each value."""
    total = 0
    for place in range(count):
        total += doubled(values[place])
    return total


class Scaled(NamedTuple):
    values: Integers
    count: Integer


class Turned(NamedTuple):
    count: Integer
    values: Integers


def scale(first, record, out):
    """Write each value times `first`; return their number."""
    for place in range(record.count):
        out[place] = first * doubled(record.values[place])
    return record.count


SIGNATURE = "i64(i64*, i64)"
VALUES = np.array([1, 2, 39], np.int64)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a list of kernels that forgets what a test declares."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "kernels", list(native.kernels))
    return tmp_path / "wiretide" / "kernels"


def fresh() -> Kernel:
    return kernel(SIGNATURE)(sum_doubled)


def test_a_kernel_is_compiled_once_and_loaded_after_that(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fresh()
    assert first.stored() is None
    assert first in missing_kernels()
    assert first(VALUES, 3) == 84
    assert [path.name for path in cache.iterdir()] == [first.path().name]
    second = fresh()
    assert second not in missing_kernels()
    monkeypatch.setattr(Kernel, "compile", lambda kernel: pytest.fail("compiled again"))
    monkeypatch.setattr(native, "_read_code", lambda path: pytest.fail("read again"))
    assert second(VALUES, 3) == 84
    assert second.function(VALUES, 3) == 84
    assert second.__doc__ == "Sum of twice each value."


def test_a_kernel_takes_records_as_arrays_and_as_addresses(cache: Path) -> None:
    scaled = kernel("i64(i64, Scaled, i64*)")(scale)
    assert scaled.arguments == ["i64", "i64*", "i64", "i64*"]
    for count, call in enumerate((scaled, scaled.function, scaled.at), 1):
        out = np.zeros(3, np.int64)
        by_address = call == scaled.at
        record = Scaled(count=count, values=pointer(VALUES, "i64") if by_address else VALUES)
        assert call(3, record, pointer(out, "i64") if by_address else out) == count
        assert out.tolist() == [6, 12, 234][:count] + [0] * (3 - count)
    assert scaled.group([3, VALUES, 2, VALUES]) == [3, Scaled(VALUES, 2), VALUES]
    with pytest.raises(ValueError, match="shorter"):
        scaled(3, (VALUES,), VALUES)


@pytest.mark.usefixtures("cache")
def test_another_order_of_fields_has_another_file() -> None:
    assert kernel("i64(i64, Scaled, i64*)")(scale).path() != kernel("i64(i64, Turned, i64*)")(scale).path()


def test_another_signature_has_another_file(cache: Path) -> None:
    assert kernel("i64(i64*, i64)")(sum_doubled).path() != kernel("i64(u8*, i64)")(sum_doubled).path()
    assert fresh().path().parent == cache_folder() == cache


def test_the_file_is_named_after_what_is_in_memory_whatever_the_source_says_by_now(cache: Path) -> None:
    source = (
        "def scaled(value):\n    return value * FACTOR\n\ndef kernel_of(values, count):\n    return scaled(values[0])\n"
    )

    def of(source: str, factor: int) -> Path:
        namespace = {"FACTOR": factor}
        exec(compile(source, __file__, "exec"), namespace)  # as if this file had said so when it was imported
        helper(namespace["scaled"])
        return kernel(SIGNATURE)(namespace["kernel_of"]).path()

    assert of(source, 2) == of(source, 2)
    assert len({of(source, 2), of(source, 3), of(source.replace("* FACTOR", "+ FACTOR"), 2)}) == 3


def test_a_harmed_cache_file_is_compiled_again_whatever_byte_is_harmed(cache: Path) -> None:
    fresh()(VALUES, 3)
    path = fresh().path()
    whole = path.read_bytes()
    code = whole.index(b"\n") + 1
    places = [*range(code + 64), *range(code + 64, len(whole), 37), len(whole) - 1]
    believed = []
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        stored = fresh().stored()
        if stored is not None and stored != (json.loads(whole[:code])["symbol"], whole[code:]):
            believed.append((place, stored[0]))
    assert believed == []
    assert fresh()(VALUES, 3) == 84
    assert fresh().stored() is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\ncode",
        b"null\n",
        b"\xff\xfe\n",
        b'{"symbol": "s"}\ncode',
        b'{"symbol": "", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}\n',
    ],
)
def test_a_foreign_cache_file_is_compiled_again(content: bytes, cache: Path) -> None:
    path = fresh().path()
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert fresh()(VALUES, 3) == 84
    assert fresh().stored() is not None


def test_every_cut_of_a_cache_file_is_no_cache_file(cache: Path) -> None:
    fresh()(VALUES, 3)
    path = fresh().path()
    whole = path.read_bytes()
    for size in {*range(0, len(whole), 53), len(whole) - 1}:
        path.write_bytes(whole[:size])
        assert fresh().stored() is None


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(native, "kernels", list(native.kernels))
    assert fresh()(VALUES, 3) == 84
    assert fresh().stored() is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_cache_folder_is_where_the_desktop_rules_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/nowhere/me/.cache/wiretide/kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere/cache")
    assert cache_folder() == Path("/nowhere/cache/wiretide/kernels")


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(3, np.int32),
        np.zeros(3, np.uint64),
        np.zeros(3, np.float64),
        np.zeros(6, np.int64)[::2],
        np.zeros((2, 3), np.int64, order="F"),
        np.zeros(3, ">i8"),
    ],
)
def test_an_array_of_another_type_or_layout_is_refused(wrong: np.ndarray, cache: Path) -> None:
    with pytest.raises(TypeError, match="a kernel needs a contiguous array of int64, got"):
        fresh()(wrong, 3)
    with pytest.raises(TypeError, match="a kernel needs a contiguous array of int64, got"):
        pointer(wrong, "i64")


def test_addresses_alone_may_be_given_and_nothing_but_addresses(cache: Path) -> None:
    each = fresh()
    assert each.at(pointer(VALUES, "i64"), 3) == 84
    with pytest.raises(ctypes.ArgumentError):
        each.at(VALUES, 3)  # type: ignore[arg-type]


def test_a_call_with_too_few_or_too_many_arguments_is_refused(cache: Path) -> None:
    for arguments in [(VALUES,), (VALUES, 3, 3)]:
        with pytest.raises(ValueError, match="zip"):
            fresh()(*arguments)


def test_a_kernel_that_would_call_into_python_is_refused(cache: Path) -> None:
    def prints(count):
        print(count)
        return count

    with pytest.raises(TypeError, match=r"kernel prints is not self-contained: it calls \w+"):
        kernel("i64(i64)")(prints)(3)


USES_ALL = """
import sys
import numpy as np
import lowlevel.node.node  # declares every kernel
from capture.native import kernels, missing_kernels
from capture.files.pcap import scan_blocks
before = len(missing_kernels()) - len(kernels)  # -1 where one of them is there already
state = np.array([24, 1], np.int64)
rows = np.zeros(5, np.int64)
print(before, scan_blocks(np.zeros(24, np.uint8), 24, 0, 1, 16, 0, 9, 1, 1, rows, state), state.tolist())
print(*sorted({"numba", "scapy", "dpkt", "pyspark", "pandas"} & set(sys.modules)))
"""


def start(cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", USES_ALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.mark.slow("processes that compile kernels")
def test_two_processes_may_compile_at_once_and_a_third_imports_no_numba(tmp_path: Path) -> None:
    both = [start(tmp_path), start(tmp_path)]
    for process in both:
        output, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
        assert output.splitlines()[0].endswith(" 0 [24, 0]")
    files = list((tmp_path / "wiretide" / "kernels").iterdir())
    assert [path.suffix for path in files] == [".o"]
    third = start(tmp_path)
    output, errors = third.communicate()
    assert (third.returncode, errors) == (0, "")
    compiled, imported = output.splitlines()
    assert compiled == "-1 0 [24, 0]"
    assert imported == ""


COUNTS = """
import sys
from pathlib import Path
from capture.native import Kernel, kernel

def tripled(value):
    return value * 3

each = kernel("i64(i64)")(tripled)
compile_code = Kernel.compile

def compile_and_count(self):
    with Path(sys.argv[1]).open("a") as file:
        file.write("compiled ")
    return compile_code(self)

Kernel.compile = compile_and_count
print("ready", flush=True)
sys.stdin.readline()
print(each(14))
"""


@pytest.mark.slow("processes that compile a kernel")
def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path: Path) -> None:
    """Tasks of Spark are such processes: without a lock each of them would compile for seconds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTS, tmp_path / "count"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in processes] == ["42\n"] * 3
    assert (tmp_path / "count").read_text() == "compiled "


def test_code_that_is_shipped_with_the_environment_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Kernel(sum_doubled, SIGNATURE)
    compiled.compile()
    path = compiled.path()
    shipped = cache / "prefix" / "share" / "wiretide" / "kernels"
    shipped.mkdir(parents=True)
    path.rename(shipped / path.name)
    assert compiled.stored() is None
    monkeypatch.setattr(sys, "prefix", str(cache / "prefix"))
    assert compiled.stored_path() == shipped / path.name
    monkeypatch.setattr(Kernel, "compile", lambda _: pytest.fail("compiled again"))
    assert Kernel(sum_doubled, SIGNATURE)(VALUES, 3) == 84
    (shipped / path.name).chmod(0o666)  # others could replace it
    assert compiled.stored() is None


CALLS = """
import numpy as np
from capture.kernel_cache import cache_folder
from capture.native import kernel

def tripled(value):
    return value * 3

each = kernel("i64(i64)")(tripled)
print(each(14), cache_folder())
"""


def other_process(cache: Path, source: str = CALLS) -> tuple[str, str, str]:
    """Return the output of a process that uses a cache: the kernel's answer, its cache folder, standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, env=environment, check=True
    )
    answer, _, folder = ended.stdout.strip().partition(" ")
    return answer, folder, ended.stderr


def poison(folder: Path) -> None:
    """Put the code of another function, under a right hash, into the file of the kernel."""
    other_process(folder.parent.parent.parent / "attacker", CALLS.replace("value * 3", "value * 0 + 666"))
    (code,) = (folder.parent.parent.parent / "attacker/wiretide/kernels").iterdir()
    (victim,) = folder.iterdir()
    mode = victim.stat().st_mode
    victim.unlink()
    victim.write_bytes(code.read_bytes())
    victim.chmod(mode)


def test_the_cache_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        other_process(tmp_path / "cache")
    finally:
        os.umask(before)
    modes = {path.relative_to(tmp_path).parts[:3]: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {
        ("cache",): 0o700,
        ("cache", "wiretide"): 0o700,
        ("cache", "wiretide", "kernels"): 0o600,  # the file in it is the last of its parts
    }
    assert (tmp_path / "cache/wiretide/kernels").stat().st_mode & 0o777 == 0o700


@pytest.mark.drawn
@pytest.mark.parametrize("opened", ["wiretide", "wiretide/kernels"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
@pytest.mark.slow("processes that load kernels")
def test_code_from_a_folder_that_others_can_write_is_never_run(opened: str, mode: int, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert other_process(cache) == ("42", str(cache / "wiretide/kernels"), "")
    poison(cache / "wiretide/kernels")
    assert other_process(cache)[0] == "666"  # a private folder is trusted: only we could have put it there
    (cache / opened).chmod(mode)
    answer, folder, err = other_process(cache)
    assert answer == "42"
    assert "wiretide-kernels-" in folder
    assert not Path(folder).exists()
    assert err.count("\n") == 1
    assert err.startswith(f"wiretide: warning: the cache of machine code is not used: {cache / opened}: ")
    assert f"got mode {mode:04o}" in err
    assert f"chmod go-w '{cache / opened}'" in err


@pytest.mark.slow("compiles kernels")
def test_a_file_that_others_can_write_is_compiled_again_and_replaced(tmp_path: Path) -> None:
    other_process(tmp_path)
    poison(tmp_path / "wiretide/kernels")
    (victim,) = (tmp_path / "wiretide/kernels").iterdir()
    victim.chmod(0o666)
    assert other_process(tmp_path)[0] == "42"
    assert victim.stat().st_mode & 0o777 == 0o600
    assert other_process(tmp_path)[0] == "42"


@pytest.mark.slow("compiles kernels")
def test_a_symbolic_link_or_a_pipe_in_the_place_of_code_is_not_read(tmp_path: Path) -> None:
    other_process(tmp_path)
    (code,) = (tmp_path / "wiretide/kernels").iterdir()
    code.rename(tmp_path / "elsewhere")
    code.symlink_to(tmp_path / "elsewhere")
    assert other_process(tmp_path)[0] == "42"
    assert not code.is_symlink()
    code.unlink()
    os.mkfifo(code)
    assert other_process(tmp_path)[0] == "42"
    assert code.is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("path", ["wiretide", "wiretide/kernels", "wiretide/kernels/*"])
@pytest.mark.slow("processes that load kernels")
def test_code_of_another_user_is_never_run(path: str, tmp_path: Path) -> None:
    other_process(tmp_path)
    poison(tmp_path / "wiretide/kernels")
    (foreign,) = tmp_path.glob(path)
    os.chown(foreign, 12345, -1)
    assert other_process(tmp_path)[0] == "42"


@pytest.mark.slow("compiles kernels")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_cache_folder_behind_the_link_of_another_user_is_not_used(tmp_path: Path) -> None:
    other_process(tmp_path)
    (tmp_path / "wiretide").rename(tmp_path / "ours")
    (tmp_path / "wiretide").symlink_to(tmp_path / "ours")
    assert other_process(tmp_path) == ("42", str(tmp_path / "wiretide/kernels"), "")
    os.lchown(tmp_path / "wiretide", 12345, -1)
    answer, folder, err = other_process(tmp_path)
    assert (answer, "wiretide-kernels-" in folder) == ("42", True)
    assert "a symbolic link of another user" in err
