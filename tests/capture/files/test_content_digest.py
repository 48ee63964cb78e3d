"""The digest of a capture's bytes.

* It is compared with its definition in Python's integers, over random lengths and segments, so that a word that is
  skipped at an edge shows: its change would not be found.
* Any changed byte changes it: a run would otherwise continue over another capture.
"""

import hashlib
from random import Random

import numpy as np
import pytest

import capture.files.content_digest as content_digest
from capture.files.content_digest import SUM_COUNT, digest_content

A, B, WORD = 0xC2B2AE3D27D4EB4F, 0x9E3779B185EBCA87, 2**64


def reference(content: bytes, segment_bytes: int) -> str:
    digest = hashlib.blake2b(len(content).to_bytes(8, "little"), digest_size=16)
    for start in range(0, len(content), segment_bytes):
        segment = content[start : start + segment_bytes]
        rest = len(segment) % (8 * SUM_COUNT)
        # A whole last group is followed by a group of zeros.
        segment += bytes(8 * SUM_COUNT - rest)
        sums = [0] * SUM_COUNT
        for word in range(len(segment) // 8):
            value = int.from_bytes(segment[8 * word : 8 * word + 8], "little")
            total = (sums[word % SUM_COUNT] + value * A) % WORD
            sums[word % SUM_COUNT] = (total << 31 | total >> 33) % WORD * B % WORD
        digest.update(b"".join(total.to_bytes(8, "little") for total in sums))
    return digest.hexdigest()


def digest_of(content: bytes) -> str:
    return digest_content(np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("seed", range(4))
def test_the_digest_is_its_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    print("seed", seed)
    monkeypatch.setattr(content_digest, "SEGMENT_BYTES", 64 << seed)
    for length in [0, 1, 31, 32, 33, 64 << seed, (64 << seed) + 1, *(random.randrange(3_000) for _ in range(40))]:
        content = random.randbytes(length)
        assert digest_of(content) == reference(content, 64 << seed), length


def test_every_changed_exchanged_or_missing_byte_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_digest, "SEGMENT_BYTES", 128)
    content = Random(1).randbytes(300)
    digests = {digest_of(content)}
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        digests.add(digest_of(bytes(changed)))
    assert len(digests) == 1 + len(content)
    exchanged = content[128:256] + content[:128] + content[256:]
    assert digest_of(exchanged) not in digests
    assert len({digest_of(bytes(length)) for length in range(300)}) == 300
