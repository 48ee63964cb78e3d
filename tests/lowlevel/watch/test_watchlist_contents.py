"""Texts of watchlists: their prefixes against Python's `ipaddress`, and a table of wrong texts.

* Random nested prefixes detect a range that ends with the inner range, and a range that begins at 0 or ends at the last
  address. They detect a search bucket that begins one too late, and an unsigned half that is compared as signed.
* Random lines of junk catch a word, a label or a comment that is cut one byte off, and numbers with leading zeros.
"""

from __future__ import annotations

import re
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from random import Random

import numpy as np
import pytest

from lowlevel.watch import contents as lines
from lowlevel.watch import ranges
from lowlevel.watch import ranges as flatten
from lowlevel.watch.contents import (
    BEGIN,
    CODE,
    END,
    LABEL,
    LABEL_END,
    LINE,
    OTHER,
    Form,
    lines_of,
    read_contents,
)
from lowlevel.watch.errors import WatchlistError
from queries.text.literals import AddressError, parse_prefix
from tests.conftest import Rounds
from tests.harness.plain_kernels import plain

IP = IPv4Address | IPv6Address
EDGES = {4: [0, 2**32 - 1, 2**31, 10 << 24], 6: [0, 2**128 - 1, 2**127, 2**64, 2**64 - 1, 0x2001 << 112]}
BITS = {4: 32, 6: 128}


@pytest.fixture(params=["native", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel as machine code, and as the plain Python that it is as well."""
    if request.param == "plain":
        for module, name in (
            *((lines, "read_lines"), (lines, "gather_labels")),
            *((flatten, "make_disjoint_ranges"), (ranges, "find_labels")),
        ):
            monkeypatch.setattr(module, name, plain(getattr(module, name)))


def random_prefix(random: Random, version: int) -> str:
    """A prefix that is likely to be around others, or within them, or at an edge."""
    bits = BITS[version]
    length = random.choice([random.randrange(bits + 1), bits, random.randrange(9)])
    value = random.choice([*EDGES[version], random.getrandbits(bits), random.randrange(4) << (bits - 4)])
    value = value >> (bits - length) << (bits - length)
    address = IPv4Address(value) if version == 4 else IPv6Address(value)
    return f"{address}/{length}" if length < bits or random.random() < 0.5 else str(address)


def probes(random: Random, prefixes: list[str]) -> list[IP]:
    """Addresses at, just before and just behind the edges of prefixes, and some others."""
    found: set[IP] = {
        ip_address("0.0.0.0"),
        ip_address("255.255.255.255"),
        ip_address("::"),
        ip_address("f" * 4 + "::"),
    }
    for text in prefixes:
        network = ip_network(text)
        kind = type(network.network_address)
        for edge in (int(network.network_address), int(network.broadcast_address)):
            found |= {kind(near) for near in (edge - 1, edge, edge + 1) if 0 <= near < 2 ** BITS[network.version]}
    found |= {IPv4Address(random.getrandbits(32)) for _ in range(5)} | {IPv6Address(random.getrandbits(128))}
    return random.sample(sorted(found, key=str), len(found))


def columns(addresses: list[IP]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    halves = np.array([divmod(int(each), 2**64) for each in addresses], np.uint64).reshape(-1, 2)
    return np.array([each.version for each in addresses], np.int64), halves[:, 0], halves[:, 1]


@cache
def network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


def within(address: IP, text: str) -> bool:
    return network(text).version == address.version and address in network(text)


def longest(address: IP, labels: dict[str, str]) -> str | None:
    """By definition: the label of the longest prefix that the address is in."""
    around = [text for text in labels if within(address, text)]
    return labels[max(around, key=lambda text: network(text).prefixlen)] if around else None


def random_table(random: Random) -> dict[str, str]:
    """Prefixes, each once however it is spelled, with a few labels."""
    texts = [random_prefix(random, random.choice([4, 4, 6])) for _ in range(random.randrange(14))]
    once = {ip_network(text): text for text in texts}
    return {text: random.choice(["a", "b", "Example, Ltd.", "ü"]) for text in once.values()}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("part", range(4))
def test_an_address_has_the_label_of_the_longest_prefix_around_it(part: int) -> None:
    for seed in range(30):
        random = Random(f"{part} {seed}")
        table = random_table(random)
        text = "".join(f"{prefix}{random.choice([' ', chr(9), ', ', ','])}{label}\n" for prefix, label in table.items())
        contents = read_contents(text.encode(), Form.LABELS)
        addresses = probes(random, list(table))
        assert contents.ranges is not None
        found = contents.ranges.find(*columns(addresses)).tolist()
        told = [contents.labels[each] if each >= 0 else None for each in found]
        assert told == [longest(each, table) for each in addresses], (part, seed)
        assert contents.line_count == len(table)


@pytest.mark.usefixtures("kernels")
def test_an_address_is_in_a_list_where_a_line_holds_it() -> None:
    for seed in range(50):
        random = Random(seed)
        texts = [random_prefix(random, random.choice([4, 6])) for _ in range(random.randrange(12))]
        contents = read_contents("\n".join(texts).encode(), Form.ADDRESSES)
        addresses = probes(random, texts)
        assert contents.ranges is not None
        found = contents.ranges.find(*columns(addresses)) >= 0
        wanted = [any(within(each, text) for text in texts) for each in addresses]
        assert found.tolist() == wanted, seed
        one = columns(addresses[:1])
        assert (contents.ranges.find(one[0][0], *one[1:]) >= 0).tolist() == wanted[:1]  # one version for all rows


def line_twin(text: str) -> list[tuple[int, str, str, bool]]:
    """Return number, word, rest of the line and whether the word is IPv4, line by line with regular expressions."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        said = line.partition("#")[0].strip(" \t\r")
        if said:
            match = re.fullmatch(r"([^ \t\r,]*)[ \t\r]*,?[ \t\r]*(.*)", said, re.DOTALL)
            assert match
            found.append((number, match[1], match[2], is_four(match[1])))
    return found


def is_four(word: str) -> bool:
    _, slash, digits = word.partition("/")
    if slash and (digits == "" or str(int(digits) if digits.isascii() and digits.isdigit() else -1) != digits):
        return False
    try:
        return word.isascii() and parse_prefix(word).version == 4
    except AddressError:
        return False


@pytest.mark.usefixtures("kernels")
def test_lines_are_split_as_regular_expressions_split_them(rounds: Rounds) -> None:
    pieces = [
        *"0123456789./:, \t\r#ax",
        "\n",
        "\n",
        "10.0.0.0/8",
        "1.2.3.4",
        "255.255.255.255/32",
        "01",
        "256",
        "ü",
        "::1",
    ]
    for seed in rounds(400):
        random = Random(seed)
        text = "".join(random.choice(pieces) for _ in range(random.randrange(40)))
        data = text.encode()
        told = [
            (
                int(line[LINE]),
                data[line[BEGIN] : line[END]].decode(),
                data[line[LABEL] : line[LABEL_END]].decode(),
                bool(line[CODE] != OTHER),
            )
            for line in lines_of(data)
        ]
        assert told == line_twin(text), (seed, text)


def test_the_code_of_a_word_is_its_address_and_length(rounds: Rounds) -> None:
    for seed in rounds(200):
        text = random_prefix(Random(seed), 4)
        prefix = parse_prefix(text)
        assert lines_of(text.encode())[0, CODE] == prefix.value << 6 | prefix.length


WRONG = [
    (Form.ADDRESSES, b"10.0.0.0/8\n\nten\n", "line 3: got 'ten', expected an address or a prefix like '10.0.0.0/8'"),
    (Form.ADDRESSES, b"10.0.0.0/8 ten", "line 1: got 'ten' after the first word, expected one address or prefix"),
    (Form.ADDRESSES, b"10.0.0.1/8", "line 1: '10.0.0.1/8' has host bits set"),
    (Form.ADDRESSES, b"::1/64", "line 1: '::1/64' has host bits set"),
    (Form.ADDRESSES, b"10.0.0.0/33", "line 1: '10.0.0.0/33' has the length '33', IPv4 has 0 to 32"),
    (Form.ADDRESSES, b"10.0.0.0/08", "line 1: '10.0.0.0/08' has the length '08'"),
    (Form.ADDRESSES, b"2001:db8::/129", "line 1: '2001:db8::/129' has the length '129', IPv6 has 0 to 128"),
    (Form.ADDRESSES, b"10.0.0.010", "line 1: got '10.0.0.010', expected an address"),
    (Form.ADDRESSES, b"10.0.0", "line 1: got '10.0.0', expected an address"),
    (Form.ADDRESSES, b"fe80::1%eth0", "line 1: got 'fe80::1%eth0', expected an address"),
    (Form.ADDRESSES, b"1.2.3.4\0", "line 1: got '1.2.3.4\0', expected an address"),
    (Form.ADDRESSES, b"10.0.0.1\n\xff\xfe\n", "line 2: got bytes that are not UTF-8 text"),
    (Form.NUMBERS, b"80\n0x50\n", "line 2: got '0x50', expected an integer of 64 bits with sign"),
    (Form.NUMBERS, b"80 443", "line 1: got '443' after the first word, expected one integer per line"),
    (Form.NUMBERS, b"9223372036854775808", "line 1: got '9223372036854775808', expected an integer of 64 bits"),
    (Form.NUMBERS, b"-", "line 1: got '-', expected an integer of 64 bits"),
    (Form.NUMBERS, "٣".encode(), "line 1: got '٣', expected an integer of 64 bits"),
    (Form.LABELS, b"10.0.0.0/8 a\n10.1.0.0/16,\n", "line 2: got '10.1.0.0/16' without a label"),
    (Form.LABELS, b"10.0.0.0/8 a\n::/0 b\n10.0.0.0/8 c\n", "lines 1 and 3: one prefix with two labels, 'a' and 'c'"),
    (Form.LABELS, b"::1 a\n0::1/128 c\n", "lines 1 and 2: one prefix with two labels, 'a' and 'c'"),
]


@pytest.mark.parametrize(("form", "text", "problem"), WRONG, ids=[problem for _, _, problem in WRONG])
def test_a_wrong_line_is_named(form: Form, text: bytes, problem: str) -> None:
    with pytest.raises(WatchlistError, match=re.escape(problem)):
        read_contents(text, form)


def test_integers_of_the_whole_range_are_held() -> None:
    contents = read_contents(f"443 # https\n-1\n+7\n{-(2**63)}\n{2**63 - 1}\n443\n".encode(), Form.NUMBERS)
    wanted = np.array([443, -1, 7, -(2**63), 2**63 - 1, 0, 444], np.int64)
    assert contents.contains(wanted).tolist() == [True] * 5 + [False] * 2
    assert contents.line_count == 6


@pytest.mark.parametrize("text", [b"", b"\n\n# nothing\n  \t\r\n"])
def test_an_empty_list_holds_nothing(text: bytes) -> None:
    assert read_contents(text, Form.NUMBERS).contains(np.arange(3)).tolist() == [False] * 3
    assert read_contents(text, Form.NUMBERS).bytes == 0
    for form in (Form.ADDRESSES, Form.LABELS):
        contents = read_contents(text, form)
        assert contents.ranges is not None
        assert contents.ranges.find(*columns([ip_address("0.0.0.0"), ip_address("::")])).tolist() == [-1, -1]
        assert contents.line_count == 0


def test_a_line_that_is_there_twice_is_no_mistake() -> None:
    contents = read_contents(b"10.0.0.0/8 a\n10.0.0.0/8\ta\n10.0.0.0/9 a\n", Form.LABELS)
    assert contents.ranges is not None
    # IPv4: before the prefix, the prefix with the inner one, and after it. IPv6: all addresses.
    assert contents.ranges.count == 4
