"""pcapng against the readers that people have: tshark on times and lengths, libpcap on how many records are readable.

They share no code with the product and none with its twin: a rule of the format that both of ours got wrong shows here.
Skipped visibly where the tools are not installed.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError
from tests.references.pcap_bytes import NS
from tests.references.pcapng_bytes import block, enhanced, interface, obsolete, options, section, simple
from tests.references.pcapng_rows import read_file
from tests.references.random_pcapng import units_of

BEYOND_LIBPCAP = re.compile(
    "different from the (type|snapshot length) of the first|sections with different byte orders|bigger than snaplen"
    "|has no Interface Description Blocks|packet block before any Interface"
)
"""Damage at which libpcap stops and the product need not."""


def plausible(random: Random, order: str, resolutions: list[int | None]) -> Iterator[bytes]:
    """Blocks of a file of one byte order and link type with times of these years."""
    yield section(order)
    clocks: list[int | None] = []
    for _ in range(40):
        if not clocks or random.random() < 0.1:
            clocks.append(random.choice(resolutions))
            yield interface(1, order, resolution=clocks[-1], offset=random.choice([None, 0, 3600, -7200]), name="eth0")
        elif random.random() < 0.1:
            yield block(0x80000001, b"anything", order)  # not a custom block: tshark shows those as frames
        elif random.random() < 0.05:
            yield simple(random.randbytes(random.randrange(60)), order)
        elif random.random() < 0.05:
            yield section(order)
            clocks = []
        else:
            number = random.randrange(len(clocks))
            units = units_of(clocks[number])
            count = random.randrange(10**9, 2 * 10**9) * units + random.randrange(units)
            frame = random.randbytes(random.randrange(14, 90))
            if random.random() < 0.2:
                yield obsolete(count, frame, order, number=number, wire=len(frame) + 7)
            else:
                more = options((1, b"comment"), order=order) if random.random() < 0.2 else b""
                yield enhanced(
                    count, frame, order, number=number, wire=len(frame) + random.choice([0, 1400]), more=more
                )


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("seed", range(6))
def test_tshark_sees_the_same_times_and_lengths(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "plausible.pcapng"
    resolutions = [None, 0, 3, 6, 9, 128 + 10, 128 + 20, 128 + 30]  # tshark is not exact with finer ones
    path.write_bytes(b"".join(b"".join(plausible(random, order, resolutions)) for order in random.choices("<>", k=3)))
    fields = [word for name in ("time_epoch", "cap_len", "len") for word in ("-e", f"frame.{name}")]
    command = ["tshark", "-n", "-r", path, "-T", "fields", *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = []
    for line in done.stdout.splitlines():
        time, captured, wire = line.split("\t")
        seconds, _, fraction = (time or "0.0").partition(".")
        seen.append((int(seconds) * NS + int(fraction.ljust(9, "0")), int(captured), int(wire)))
    rows, _, _, damage = read_file(path, 16)
    assert [(row["ts"], row["caplen"], row["len"]) for row in rows] == seen
    assert damage is None
    assert len(rows) > 20


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
@pytest.mark.parametrize("seed", range(60))
def test_libpcap_reads_as_many_records_of_a_harmed_file(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "harmed.pcapng"
    data = bytearray(b"".join(plausible(random, random.choice("<>"), [None, 9, 128 + 10])))
    for _ in range(random.choice([0, 1, 1, 2])):
        data[random.randrange(len(data))] = random.choice([0, 1, 4, 255, random.randrange(256)])
    path.write_bytes(data[: random.choice([len(data), random.randrange(len(data))])])
    done = subprocess.run(["tcpdump", "-n", "--count", "-r", path], capture_output=True, text=True)
    counted = re.search(r"(\d+) packets?", done.stdout)
    try:
        rows, _, _, damage = read_file(path, 16)
    except InputError:
        assert done.returncode
        return
    if BEYOND_LIBPCAP.search(done.stderr):
        return
    assert len(rows) == (int(counted[1]) if counted else 0)
    assert (damage is None) == (done.returncode == 0)
