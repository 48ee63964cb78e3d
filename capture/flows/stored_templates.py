"""Stored announcements of exporters: templates, sampling rates and start times, in a JSON file.

Exporters repeat their announcements at long intervals, or announce only at their start. A collector stores all
announcements in this file. So exports can be decoded directly after a restart of the collector, and captures without
announcements can be decoded. The file contains `FORMAT` and is always replaced as a whole.
"""

from __future__ import annotations

import json
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from capture.errors import InputError
from capture.files.rotation import TEMPLATES_FILE
from capture.flows.decoder import FlowDecoder
from capture.flows.sampling import MAX_RATE, MAX_SESSION_KEYS, Sampling
from capture.flows.sessions import Session, SessionKey
from capture.flows.templates import IPFIX, MAX_FIELDS, V9, Announcement, Definition, Field
from capture.private_files import replace_file

FORMAT = "wiretide flow templates, version 1"


def save(path: Path, decoder: FlowDecoder) -> None:
    """Write the announcements of all sessions of a decoder. Raises OSError if the file cannot be written."""
    sessions = [_session_to_json(session) for session in decoder.sessions if session.key.version in (V9, IPFIX)]
    text = json.dumps({"format": FORMAT, "sessions": sessions}, indent=1) + "\n"
    replace_file(path, text.encode(), sync=True)


def load(path: Path, decoder: FlowDecoder) -> int:
    """Load a file of announcements into a decoder. Return the number of sessions in the file.

    Announcements beyond the decoder's bounds are rejected, as if an exporter had sent them. Raises InputError if the
    file has another format or is damaged.
    """
    document = _document(path)
    if document is None:
        raise InputError(f'{path}: not a file of stored templates: expected "format": "{FORMAT}"')
    try:
        loaded = [_session_from_json(stored) for stored in document["sessions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__} {error}") from error
    for key, templates, sampling, started in loaded[: decoder.bounds.sessions - len(decoder.sessions)]:
        session = decoder.open_session(key)
        for template, definition in templates.items():
            decoder.templates.announce(session, Announcement(template, definition))
        session.sampling = sampling
        decoder.sessions.update_sampling(session)
        if started is not None:
            decoder.sessions.set_start(session, started)
    return len(loaded)


def load_for_capture(capture: Path, decoder: FlowDecoder) -> int:
    """Load the template file in the folder of a capture, or in the folder `capture`. Return the number of sessions.

    A file of this name with another format is ignored.
    """
    path = (capture if capture.is_dir() else capture.parent) / TEMPLATES_FILE
    return load(path, decoder) if capture.exists() and path.is_file() and _document(path) is not None else 0


def _document(path: Path) -> dict[str, Any] | None:
    """Read a template file. Return None if it has another format."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if FORMAT.encode() not in data[:200]:
        return None
    try:
        document = json.loads(data)
    except ValueError as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return document if isinstance(document, dict) and document.get("format") == FORMAT else None


def _session_to_json(session: Session) -> dict[str, Any]:
    key = session.key
    sampling = session.sampling
    return {
        "exporter": str(key.address) if key.address is not None else None,
        "port": key.port,
        "version": key.version,
        "domain": key.domain,
        "started_ms": session.exporter_start,
        "sampling": [sampling.default_rate.numerator, sampling.default_rate.denominator]
        if sampling.default_rate
        else None,
        "sampled": [
            [kind, number, rate.numerator, rate.denominator] for (kind, number), rate in sampling.rates_by_key.items()
        ],
        "templates": [
            {
                "id": template,
                "options": definition.is_options,
                "scope": definition.scope_fields,
                "fields": [[field.id, field.length, field.enterprise] for field in definition.fields],
            }
            for template, definition in session.templates.items()
        ],
    }


def _session_from_json(stored: dict[str, Any]) -> tuple[SessionKey, dict[int, Definition], Sampling, int | None]:
    """Validate and read one session. Raises KeyError, TypeError or ValueError for impossible values."""
    version = _within(stored["version"], V9, IPFIX)
    address = None if stored["exporter"] is None else ip_address(stored["exporter"])
    key = SessionKey(version, address, _within(stored["port"], 0, 0xFFFF), _within(stored["domain"], 0, 0xFFFFFFFF))
    templates = {
        _within(template["id"], 256, 0xFFFF): _definition_from_json(version, template)
        for template in stored["templates"]
    }
    sampling = Sampling(_rate(*stored["sampling"]) if stored["sampling"] is not None else None)
    if len(stored["sampled"]) > MAX_SESSION_KEYS:
        raise ValueError(f"got {len(stored['sampled'])} sampling rates, expected at most {MAX_SESSION_KEYS}")
    for kind, number, numerator, denominator in stored["sampled"]:
        sampling.rates_by_key[_within(kind, 0, 2), _within(number, 0, (1 << 64) - 1)] = _rate(numerator, denominator)
    started = stored["started_ms"]
    return key, templates, sampling, None if started is None else _within(started, 0, (1 << 63) - 1)


def _definition_from_json(version: int, template: dict[str, Any]) -> Definition:
    fields = [
        Field(_within(number, 0, 0xFFFF), _within(length, 0, 0xFFFF), _within(enterprise, 0, 0xFFFFFFFF))
        for number, length, enterprise in template["fields"]
    ]
    options, scope = template["options"], _within(template["scope"], 0, len(fields))
    definition = Definition.of(version, fields, options, scope)
    if not isinstance(options, bool) or len(fields) > MAX_FIELDS or definition.min_record_bytes == 0:
        raise ValueError(f"template {template['id']} is not possible")
    return definition


def _rate(numerator: int, denominator: int) -> Fraction:
    return Fraction(_within(numerator, 1, MAX_RATE), _within(denominator, 1, MAX_RATE))


def _within(value: object, minimum: int, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise ValueError(f"got {value!r}, expected a number from {minimum} to {maximum}")
    return value
