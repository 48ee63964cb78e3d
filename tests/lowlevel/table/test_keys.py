"""Group keys as machine words.

* Round trips over random key lists catch overlapping slices, a lost top bit, and a NULL that meets a value.
* The widths are written out, because one word more for each entry is a table that holds fewer groups.
"""

from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

import numpy as np
import pytest

from lowlevel.expressions.columns import AddressVector, AnyVector, TextVector, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Literal
from lowlevel.expressions.types import Type
from lowlevel.plan import Key
from lowlevel.table.keys import KeyLayout, codes_of, pack_word, read_slices, whole_words
from tests.references.random_plans import COMPUTED, PACKET, keys_of

PAIR = ("srcIP", "destIP")
TEXTS = ("", "eth0", "wlan1", "Ethernet 1/1")
FIVE_TUPLE = (*PAIR, "srcPort", "destPort", "protocol")


@pytest.mark.parametrize(
    "names, version, words",
    [
        ((), 0, 0),
        (("srcIP",), 4, 1),
        (PAIR, 4, 1),
        (PAIR, 6, 4),
        (FIVE_TUPLE, 4, 2),
        (FIVE_TUPLE, 6, 5),
        (("protocol", "ttl", "tos", "ip_version", "tcp_flags", "vlan"), 0, 1),
        (("srcPort", "srcIP", "destPort", "destIP"), 4, 2),
        (("ts",), 0, 1),
        (("wide_nullable",), 0, 2),
        (("wide_nullable", "protocol"), 0, 2),
        (("float", "float_nullable", "bool", "bool_nullable"), 0, 3),
        (("bool", "bool_nullable", "is_null"), 0, 1),
        (("srcMAC",), 0, 1),
        (("srcMAC", "destMAC"), 0, 2),
        (("interface", "srcIP"), 4, 1),
        (PAIR, 0, 0),
    ],
)
def test_keys_take_as_few_words_as_their_order_allows(names: tuple[str, ...], version: int, words: int) -> None:
    assert KeyLayout(keys_of(*names), (version,) * len(names)).words == words


def packets(random: Random, version: int, rows: int) -> dict[str, AnyVector]:
    """Packet columns, addresses of one IP version or (0) NULL, values on the edges of their widths among them."""
    made: dict[str, AnyVector] = {}
    for name, column in PACKET.items():
        edges = [0, 1, 2**column.bits - 1 if column.bits < 64 else 2**63 - 1, 2 ** (min(column.bits, 63) - 1)]
        if column.type is Type.ADDRESS:
            width = 32 if version == 4 else 128
            numbers = [random.choice([0, 2**width - 1, random.getrandbits(width)]) for _ in range(rows)]
            halves = np.array([divmod(number, 2**64) for number in numbers], np.uint64).reshape(-1, 2)
            high, low = (np.ascontiguousarray(halves[:, half]) for half in (0, 1))
            made[name] = AddressVector(np.full(rows, version), high, low, np.full(rows, version != 0))
            continue
        data = np.array(
            [random.choice([*edges, random.getrandbits(min(column.bits, 62))]) for _ in range(rows)], np.int64
        )
        data[np.array([column.nullable and random.random() < 0.3 for _ in range(rows)], np.bool_)] = -1
        valid = data != -1 if column.nullable else None
        if column.type is Type.TEXT:
            made[name] = TextVector(data % len(TEXTS), TEXTS, valid)
        else:
            made[name] = Vector(data, valid)
    return made


def expected(key: Key, columns: dict[str, AnyVector], rows: int) -> list[Any]:
    vector = evaluate(key.expression, columns)
    if isinstance(vector, AddressVector):
        if vector.version[0] == 0:
            return [None] * rows
        whole = [int(high) << 64 | int(low) for high, low in zip(vector.high, vector.low, strict=True)]
        return [(IPv4Address if vector.version[0] == 4 else IPv6Address)(number).packed for number in whole]
    valid = np.broadcast_to(True if vector.valid is None else vector.valid, rows).tolist()
    if isinstance(vector, TextVector):
        return [vector.names[each] if present else None for each, present in zip(vector.ids, valid, strict=True)]
    assert isinstance(vector, Vector)
    data = np.broadcast_to(vector.data, rows).tolist()
    if key.expression.type is Type.MAC:
        data = [number.to_bytes(6, "big") for number in (max(0, number) for number in data)]
    return [value if present else None for value, present in zip(data, valid, strict=True)]


@pytest.mark.parametrize("seed", range(60))
def test_every_list_of_keys_is_unpacked_as_it_was_packed(seed: int) -> None:
    random = Random(seed)
    version = random.choice([0, 4, 6])
    rows = random.choice([1, 2, 40])
    names = random.sample([*PACKET, *COMPUTED], random.randrange(1, 9))
    keys = keys_of(*names)
    layout = KeyLayout(keys, (version,) * len(keys))
    columns = packets(random, version, rows)
    words = np.full((layout.words, 64), -1, np.int64)  # what the last block left in the buffer must not show
    layout.pack(columns, rows, words)
    entries = np.ascontiguousarray(words[:, :rows].T)
    unpacked = layout.unpack(entries)
    for key, column in zip(keys, unpacked, strict=True):
        column.validate(full=True)
        assert column.to_pylist() == expected(key, columns, rows), key.name
    rows_of = list(zip(*(column.to_pylist() for column in unpacked), strict=True))
    assert len({tuple(entry) for entry in entries.tolist()}) == len(set(rows_of))
    assert (words[:, rows:] == -1).all()


def test_the_two_zeros_are_one_group() -> None:
    layout = KeyLayout([Key("x", Column("x", Type.FLOAT))])
    words = np.zeros((1, 2), np.int64)
    layout.pack({"x": Vector(np.array([0.0, -0.0]))}, 2, words)
    assert words[0, 0] == words[0, 1]


def test_a_constant_key_is_the_same_for_every_row() -> None:
    keys = [
        Key("one", Literal(1, Type.INT)),
        Key("none", Literal(None, Type.INT)),
        Key("yes", Literal(True, Type.BOOL)),
    ]
    layout = KeyLayout(keys)
    words = np.zeros((layout.words, 3), np.int64)
    layout.pack({}, 3, words)
    columns = [column.to_pylist() for column in layout.unpack(np.ascontiguousarray(words.T))]
    assert columns == [[1, 1, 1], [None, None, None], [True, True, True]]


def test_bytes_are_refused_as_a_key() -> None:
    with pytest.raises(ValueError, match="a key of type bytes cannot be kept in the low level: payload"):
        KeyLayout([Key("payload", Column("payload", Type.BYTES))])


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_kernel_as_plain_python_agrees_with_its_machine_code(keep: int, count: int) -> None:
    random = Random(keep + count)
    pieces: list[Any] = []
    for shift, add in ((0, 1), (20, 0), (40, 1)):
        pieces += [np.array([random.randrange(1 << 10) - add for _ in range(20)], np.int64), shift, add]
    fast = np.full(20, 1 << 60, np.int64)
    slow = fast.copy()
    assert pack_word(fast, keep, *pieces, count, 20) == pack_word.function(slow, keep, *pieces, count, 20) == 20
    laid = 1 if keep else count  # what is kept is laid over by one column
    expected = np.full(20, keep << 60, np.int64)
    for place in range(laid):
        codes, shift, add = pieces[3 * place : 3 * place + 3]
        expected |= (codes + add) << shift
    assert fast.tolist() == slow.tolist() == expected.tolist()


def test_codes_are_read_out_of_the_words_of_entries() -> None:
    random = Random(4)
    words = [[random.getrandbits(64) - 2**63 for _ in range(3)] for _ in range(150)]
    entries = np.array(words, np.int64)
    slices = [(0, 0, -1, 0), (2, 60, 15, 0), (1, 5, 2**17 - 1, 1), (2, 0, 1, 1)]
    signed = []
    for word, shift, mask, take in slices:
        codes = [(entry[word] % 2**64 >> shift) & mask % 2**64 for entry in words]
        signed.append([(code + 2**63) % 2**64 - 2**63 - take for code in codes])
    assert codes_of(entries, slices).tolist() == signed
    slow = np.empty((4, 150), np.int64)
    numbers = np.array(slices, np.int64).reshape(-1)
    read_slices.function(entries.reshape(-1), 150, 3, numbers, 4, slow.reshape(-1))
    assert slow.tolist() == signed
    assert codes_of(entries, whole_words(1, 3)).tolist() == entries[:, 1:].T.tolist()
    assert codes_of(entries, whole_words(0, 0)).shape == (0, 150)
