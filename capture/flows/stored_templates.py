"""Store announcements of exporters in a file: their templates, their sampling rates, their start times.

An exporter sends its templates periodically; some send them only when they start. The file outlives the collector, and
decodes captures whose beginning is missing. It is JSON, contains its `FORMAT`, and is replaced as a whole.
"""

from __future__ import annotations

import json
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from capture.errors import InputError
from capture.files.rotation import TEMPLATES
from capture.flows.decoder import FlowDecoder
from capture.flows.sampling import LARGEST, MAX_KEYS, Sampling
from capture.flows.sessions import Session, SessionKey
from capture.flows.templates import IPFIX, MAX_FIELDS, V9, Announcement, Definition, Field
from capture.private_files import replace_file

FORMAT = "wiretide flow templates, version 1"


def save(path: Path, decoder: FlowDecoder) -> None:
    """Write what all sessions of a decoder announced; OSError where that cannot be."""
    sessions = [_session_out(session) for session in decoder.sessions if session.key.version in (V9, IPFIX)]
    text = json.dumps({"format": FORMAT, "sessions": sessions}, indent=1) + "\n"
    replace_file(path, text.encode(), sync=True)


def load(path: Path, decoder: FlowDecoder) -> int:
    """Let a decoder know what is in a file; return how many sessions that are. InputError where it is none of ours.

    What the decoder's bounds do not allow is left out, as if an exporter had said it.
    """
    document = _document(path)
    if document is None:
        raise InputError(f'{path}: not a file of stored templates: expected "format": "{FORMAT}"')
    try:
        found = [_session_in(each) for each in document["sessions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__} {error}") from error
    for key, templates, sampling, started in found[: decoder.bounds.sessions - len(decoder.sessions)]:
        session = decoder.open_session(key)
        for template, definition in templates.items():
            decoder.templates.announce(session, Announcement(template, definition))
        session.sampling = sampling
        decoder.sessions.sampled(session)
        if started is not None:
            decoder.sessions.started(session, started)
    return len(found)


def load_beside(capture: Path, decoder: FlowDecoder) -> int:
    """Load the file of stored templates in a capture's folder, or in the folder that it is; 0 where there is none.

    A file that is called so and is another's is left alone.
    """
    path = (capture if capture.is_dir() else capture.parent) / TEMPLATES
    return load(path, decoder) if capture.exists() and path.is_file() and _document(path) is not None else 0


def _document(path: Path) -> dict[str, Any] | None:
    """Read a file; None where it does not say that it is one of ours."""
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


def _session_out(session: Session) -> dict[str, Any]:
    key = session.key
    sampling = session.sampling
    return {
        "exporter": str(key.address) if key.address is not None else None,
        "port": key.port,
        "version": key.version,
        "domain": key.domain,
        "started_ms": session.started,
        "sampling": [sampling.default.numerator, sampling.default.denominator] if sampling.default else None,
        "sampled": [
            [kind, number, rate.numerator, rate.denominator] for (kind, number), rate in sampling.keyed.items()
        ],
        "templates": [
            {
                "id": template,
                "options": definition.options,
                "scope": definition.scope,
                "fields": [[each.id, each.length, each.enterprise] for each in definition.fields],
            }
            for template, definition in session.templates.items()
        ],
    }


def _session_in(each: dict[str, Any]) -> tuple[SessionKey, dict[int, Definition], Sampling, int | None]:
    """Check and take one session; KeyError, TypeError or ValueError for anything that no exporter could have said."""
    version = _within(each["version"], V9, IPFIX)
    address = None if each["exporter"] is None else ip_address(each["exporter"])
    key = SessionKey(version, address, _within(each["port"], 0, 0xFFFF), _within(each["domain"], 0, 0xFFFFFFFF))
    templates = {
        _within(template["id"], 256, 0xFFFF): _definition_in(version, template) for template in each["templates"]
    }
    sampling = Sampling(_rate(*each["sampling"]) if each["sampling"] is not None else None)
    if len(each["sampled"]) > MAX_KEYS:
        raise ValueError(f"got {len(each['sampled'])} sampling rates, expected at most {MAX_KEYS}")
    for kind, number, numerator, denominator in each["sampled"]:
        sampling.keyed[_within(kind, 0, 2), _within(number, 0, (1 << 64) - 1)] = _rate(numerator, denominator)
    started = each["started_ms"]
    return key, templates, sampling, None if started is None else _within(started, 0, (1 << 63) - 1)


def _definition_in(version: int, template: dict[str, Any]) -> Definition:
    fields = [
        Field(_within(number, 0, 0xFFFF), _within(length, 0, 0xFFFF), _within(enterprise, 0, 0xFFFFFFFF))
        for number, length, enterprise in template["fields"]
    ]
    options, scope = template["options"], _within(template["scope"], 0, len(fields))
    definition = Definition.of(version, fields, options, scope)
    if not isinstance(options, bool) or len(fields) > MAX_FIELDS or definition.shortest == 0:
        raise ValueError(f"template {template['id']} cannot be")
    return definition


def _rate(numerator: int, denominator: int) -> Fraction:
    return Fraction(_within(numerator, 1, LARGEST), _within(denominator, 1, LARGEST))


def _within(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"got {value!r}, expected a number from {least} to {most}")
    return value
