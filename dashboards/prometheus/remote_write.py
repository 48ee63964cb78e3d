"""Send samples with the remote-write protocol of Prometheus (version 1.0): protobuf, compressed with snappy.

A receiver accepts samples only in the order of their times, unless it allows out-of-order samples. So the samples of
all series are sent in one common order of time. Prometheus itself refuses samples that are more than an hour older than
its newest sample. Mimir, Thanos, VictoriaMetrics and a Prometheus without samples accept a capture of last year.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np
import pyarrow as pa

from dashboards.prometheus.access import read_token
from dashboards.prometheus.backfill import BackfillError, SampleFamily

MAX_BATCH_SAMPLES = 5_000
"""Maximum number of samples of a request."""

RESPONSE_TIMEOUT = 30.0
"""Maximum seconds to wait for a response."""

RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts. A request is repeated if the response shows that a later attempt may succeed."""

MAX_ERROR_CHARACTERS = 300

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": "wiretide",
}

Labels = tuple[tuple[str, str], ...]


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, because a redirect would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request, so that the answer is an error."""


class RemoteWrite:
    """Sends samples to one receiver."""

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        """Send to `url`. Raises BackfillError for a text that is not a URL, AccessError for a wrong token."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise BackfillError(f"--remote-write {url}: expected http://HOST/PATH or https://HOST/PATH, without a user")
        _write_request()  # raises an error now if protobuf is not installed
        self.url = url
        self._headers = {**HEADERS}
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {read_token(token_file).decode()}"
        self._opener = build_opener(_NoRedirect)

    def send(
        self,
        families: Sequence[SampleFamily],
        common_labels: Mapping[str, str],
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send all samples in the order of time. Return their number. `common_labels`: labels of all series.

        Raises BackfillError if the receiver refuses the samples or does not answer.
        """
        total = sum(len(samples.times) for family in families for samples in family.series.values())
        sent = 0
        for batch in batches_by_time(families, common_labels):
            self._post(encode(batch), sent)
            sent += sum(len(samples) for samples in batch.values())
            if progress is not None:
                progress(sent, total)
        return sent

    def _post(self, body: bytes, sent: int) -> None:
        request = Request(self.url, body, self._headers, method="POST")  # the scheme was checked
        for pause in (*RETRY_SECONDS, None):
            try:
                with self._opener.open(request, timeout=RESPONSE_TIMEOUT):
                    return
            except HTTPError as error:
                with error:
                    text = " ".join(error.read(MAX_ERROR_CHARACTERS).decode("utf-8", "replace").split())
                message = f"status {error.code}: {text or error.reason}"
                if error.code != 429 and error.code < 500:
                    pause = None
            except (URLError, OSError) as error:
                message = str(getattr(error, "reason", error))
            if pause is None:
                raise BackfillError(f"{self.url}: {message}; {sent:,} samples were accepted before")
            time.sleep(pause)


def batches_by_time(
    families: Sequence[SampleFamily], common_labels: Mapping[str, str]
) -> Iterator[dict[Labels, list[tuple[int, float]]]]:
    """Yield batches of at most MAX_BATCH_SAMPLES samples, in the order of their times.

    A batch contains samples by series.
    """
    labels: list[Labels] = []
    times, values, lengths = [], [], []
    for family in families:
        for texts, samples in family.series.items():
            named = {"__name__": family.name, **dict(zip(family.labels, texts, strict=True)), **common_labels}
            labels.append(tuple(sorted((name, text) for name, text in named.items() if text)))
            times.append(np.array(samples.times, np.int64))
            values.append(np.array(samples.values, np.float64))
            lengths.append(len(samples.times))
    if not labels:
        return
    owners = np.repeat(np.arange(len(labels)), lengths)
    all_times, all_values = np.concatenate(times), np.concatenate(values)
    order = np.argsort(all_times, kind="stable")
    for first in range(0, len(order), MAX_BATCH_SAMPLES):
        batch: dict[Labels, list[tuple[int, float]]] = {}
        for index in order[first : first + MAX_BATCH_SAMPLES].tolist():
            batch.setdefault(labels[owners[index]], []).append((int(all_times[index]), float(all_values[index])))
        yield batch


def encode(batch: Mapping[Labels, Sequence[tuple[int, float]]]) -> bytes:
    """Return a compressed WriteRequest. The times of each series must be in ms, in ascending order."""
    request = _write_request()()
    for labels, samples in batch.items():
        series = request.timeseries.add()
        for name, text in labels:
            series.labels.add(name=name, value=text)
        for timestamp, value in samples:
            series.samples.add(timestamp=timestamp, value=value)
    compressed: bytes = pa.compress(request.SerializeToString(), codec="snappy", asbytes=True)
    return compressed


@cache
def _write_request() -> Any:
    """Return the message class of `prometheus.WriteRequest` (remote-write 1.0, `remote.proto` and `types.proto`)."""
    try:
        from google.protobuf import (  # type: ignore[import-untyped]
            descriptor_pb2,
            descriptor_pool,
            message_factory,
        )
    except ModuleNotFoundError as error:
        raise BackfillError("--remote-write needs protobuf: pip install 'wiretide[remote-write]'") from error
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    messages = {
        "Label": [("name", 1, one, field.TYPE_STRING, ""), ("value", 2, one, field.TYPE_STRING, "")],
        "Sample": [("value", 1, one, field.TYPE_DOUBLE, ""), ("timestamp", 2, one, field.TYPE_INT64, "")],
        "TimeSeries": [
            ("labels", 1, many, field.TYPE_MESSAGE, ".prometheus.Label"),
            ("samples", 2, many, field.TYPE_MESSAGE, ".prometheus.Sample"),
        ],
        "WriteRequest": [("timeseries", 1, many, field.TYPE_MESSAGE, ".prometheus.TimeSeries")],
    }
    file = descriptor_pb2.FileDescriptorProto(name="wiretide_remote_write.proto", package="prometheus", syntax="proto3")
    for message, fields in messages.items():
        declared = file.message_type.add(name=message)
        for name, number, label, kind, type_name in fields:
            declared.field.add(name=name, number=number, label=label, type=kind, type_name=type_name or None)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))
