"""Files of a run with a checksum, which is verified when they are read.

    {"checksum": "1c2d3e4f", "content": …}

Documents are JSON texts of this form. The checksum is the CRC-32 of the bytes of the content, as eight hexadecimal
digits. So every changed byte is detected, in the prefix, in the checksum, or in the content. Binary files contain no
checksum: a document that names them stores their length and their CRC-32.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

from capture.private_files import make_private_folder, replace_file
from highlevel.spark.errors import FolderError

DOCUMENT = re.compile(rb'\{"checksum": "([0-9a-f]{8})", "content": (.*)\}', re.DOTALL)

REMEDY = "restore it from a copy, or start again with another folder"
"""End of messages about missing and damaged files."""


def checksum(content: Any) -> str:
    """Return the CRC-32 of an object with a buffer, as eight hexadecimal digits.

    >>> checksum(b"123456789")
    'cbf43926'
    """
    return f"{zlib.crc32(content):08x}"


def verify(path: Path | str, content: Any, expected_size: int, expected_checksum: str) -> None:
    """Compare the content of a file with its length and checksum. Raises FolderError that names the file."""
    found_size = memoryview(content).nbytes
    if found_size != expected_size:
        raise FolderError(f"{path}: damaged: got {found_size} bytes, expected {expected_size}; {REMEDY}")
    found_checksum = checksum(content)
    if found_checksum != expected_checksum:
        raise FolderError(f"{path}: damaged: got checksum {found_checksum}, expected {expected_checksum}; {REMEDY}")


def write_document(path: Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON value with its checksum."""
    make_private_folder(path.parent)
    replace_file(path, encode_document(content, indent))


def encode_document(content: Any, indent: int | None = None) -> bytes:
    """Return a JSON value with its checksum, as bytes."""
    text = json.dumps(content, indent=indent).encode()
    return b'{"checksum": "%s", "content": %s}' % (checksum(text).encode(), text)


def read_document(path: Path) -> Any:
    """Return the value that `write_document` wrote.

    Raises FileNotFoundError if the file is missing, FolderError if it is damaged or unreadable.
    """
    return decode_document(read_bytes(path), path)


def decode_document(stored: bytes, path: Path | str) -> Any:
    """Return the value that `encode_document` encoded. `path` is for messages. Raises FolderError for damaged bytes."""
    parts = DOCUMENT.fullmatch(stored)
    if parts is None:
        expected = "a document with a checksum"
        raise FolderError(f"{path}: damaged, or written by another version: expected {expected}; {REMEDY}")
    verify(path, parts[2], len(parts[2]), parts[1].decode())
    return json.loads(parts[2])


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises FileNotFoundError, and FolderError for every other failure."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}; {REMEDY}") from None
