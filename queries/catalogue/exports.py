"""Ready queries about flow exports and samples, and their health."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery
from queries.text.parameters import ROWS, WINDOW, Parameter, ParameterType

EXPORTS = (
    ReadyQuery(
        "exporters",
        "flow exports",
        "flows",
        "Flows, packets and bytes of each flow exporter, and its sampling rate.",
        """\
SELECT exporter, version, count(*) AS flows, sum(packets) AS packets, sum(bytes) AS bytes,
       max(sampling_rate) AS sampling_rate
FROM flows $window
GROUP BY exporter, version""",
        (WINDOW,),
    ),
    ReadyQuery(
        "flow-talkers",
        "flow exports",
        "flows",
        "The sources with most bytes in flow exports.",
        """\
SELECT srcIP, count(*) AS flows, sum(packets) AS packets, sum(bytes) AS bytes
FROM flows $window
GROUP BY srcIP
ORDER BY bytes DESC, srcIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "flow-interfaces",
        "flow exports",
        "flows",
        "Bytes through the interfaces of each flow exporter.",
        """\
SELECT exporter, input, output, count(*) AS flows, sum(bytes) AS bytes
FROM flows $window
GROUP BY exporter, input, output
ORDER BY bytes DESC, exporter, input, output LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "autonomous-systems",
        "flow exports",
        "flows",
        "The autonomous systems that receive most bytes in flow exports.",
        """\
SELECT destAS, count(*) AS flows, sum(packets) AS packets, sum(bytes) AS bytes
FROM flows $window
GROUP BY destAS
ORDER BY bytes DESC, destAS LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "flow-durations",
        "flow exports",
        "flows",
        "How long the flows of each exporter last, in milliseconds.",
        """\
SELECT exporter, count(*) AS flows, median((end_ts - start_ts) / 1000000) AS median_ms,
       max((end_ts - start_ts) / 1000000) AS max_ms
FROM flows $window
GROUP BY exporter""",
        (WINDOW,),
    ),
    ReadyQuery(
        "export-delays",
        "flow exports",
        "flows",
        "The time from the end of a flow to its export; an end in the future means a wrong clock.",
        """\
SELECT exporter, count(*) AS flows, min((arrival_ts - end_ts) / 1000000) AS min_ms,
       max((arrival_ts - end_ts) / 1000000) AS max_ms, sum(end_ts > arrival_ts) AS in_the_future
FROM flows $window
GROUP BY exporter""",
        (WINDOW,),
    ),
    ReadyQuery(
        "export-gaps",
        "flow exports",
        "flows",
        "Intervals without any flow, between the first and the last arrival from an exporter.",
        """\
SELECT exporter, count(*) AS active, max(slot) - min(slot) + 1 - count(*) AS silent,
       sum(flows) AS flows
FROM (SELECT exporter, slot, count(*) AS flows
      FROM flows
      GROUP BY exporter, arrival_ts / $seconds AS slot) slots
GROUP BY exporter""",
        (Parameter("seconds", ParameterType.INTEGER, 60, "length of an interval in seconds", minimum=1),),
    ),
    ReadyQuery(
        "sflow-agents",
        "flow exports",
        "samples",
        "Samples of each sFlow agent, the traffic that they represent, and lost samples.",
        """\
SELECT agent, count(*) AS samples, sum(sampling_rate) AS packets,
       sum(len * sampling_rate) AS bytes, max(sample_drops) AS drops
FROM samples $window
GROUP BY agent""",
        (WINDOW,),
    ),
)
