"""Settings of Kafka, for sinks and for links with a topic: the brokers, and settings of librdkafka.

[sinks.bus]
brokers = "kafka1:9092,kafka2:9092"
[sinks.bus.conf]
"security.protocol" = "SSL"
"""

from __future__ import annotations

from typing import Any

from queries.pipeline.sections import PipelineError, Section

OWN_SETTINGS = (
    "bootstrap.servers",
    "transactional.id",
    "group.id",
    "enable.idempotence",
    "enable.auto.commit",
    "enable.partition.eof",
    "auto.offset.reset",
    "isolation.level",
)
"""Settings of librdkafka that a sink or a link sets itself."""


def read_brokers(section: Section) -> str:
    """Return the brokers. Raises PipelineError if they are missing."""
    brokers: str = section.value("brokers", str, "")
    if not brokers:
        raise PipelineError(f"{section.prefix}brokers is missing: expected HOST:PORT, or several with commas")
    return brokers


def read_conf(section: Section, owner: str) -> dict[str, str]:
    """Return the settings of librdkafka as texts. `owner`: "sink" or "link", for messages."""
    conf: dict[str, Any] = section.value("conf", dict, {})
    for key, value in conf.items():
        if key in OWN_SETTINGS:
            raise PipelineError(f"{section.prefix}conf: got {key}, which the {owner} sets itself")
        if not isinstance(value, str | int | float):
            raise PipelineError(f"{section.prefix}conf.{key}: got {value!r}, expected a text, a number, true or false")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()}
