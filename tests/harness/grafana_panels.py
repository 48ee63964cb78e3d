"""The panels of Grafana dashboards as dictionaries, and their queries as Grafana sends them to Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from tests.harness.prometheus_server import Prometheus

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas" / "grafana"

Object = dict[str, Any]


def read_dashboards(files: Mapping[str, str]) -> dict[str, Object]:
    """Return the dashboards among the files of a pipeline, by the name of their file without its suffix."""
    return {Path(name).stem: json.loads(text) for name, text in files.items() if name.endswith(".json")}


def panels_of(dashboard: Object) -> list[Object]:
    """Return the panels of a dashboard that are no rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def substituted(expression: str, rate: str, whole: str) -> str:
    """Return a query with the values of Grafana's variables. Every variable of a dashboard has the value All."""
    expression = expression.replace("$__rate_interval", rate).replace("$__range", whole)
    return re.sub(r"\$\w+", ".*", expression)


def labels_in_legend(target: Object) -> set[str]:
    """Return the labels that the legend of a target names."""
    return set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))


def empty_queries(dashboard: Object, server: Prometheus, rate: str, whole: str, **parameters: str) -> Iterator[str]:
    """Yield the titles and queries of panels and variables that have no data, or whose legend has an unknown label.

    `parameters` are those of an instant query, such as `time`.
    """
    for panel in panels_of(dashboard):
        for target in panel.get("targets", ()):
            expression = substituted(target["expr"], rate, whole)
            found = server.ask("query", query=expression, **parameters)["result"]
            if not found:
                yield f"{panel['title']}: {expression}: no data"
            used = labels_in_legend(target)
            # A group whose value is NULL has no label.
            if used and not any(used <= {*one["metric"]} for one in found):
                yield f"{panel['title']}: {expression}: no series with the labels {sorted(used)}"
    for variable in dashboard["templating"].get("list", ()):
        query = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        assert query is not None, variable["query"]
        selector, label = query.groups()
        found = server.ask("series", **{"match[]": selector, **parameters})
        if not any(label in one for one in found):
            yield f"variable {variable['name']}: {selector}: no series with the label {label}"


@cache
def _schema(name: str) -> Object:
    schema: Object = _with_any(json.loads((SCHEMAS / f"{name}.json").read_text()))
    return schema


def _with_any(schema: Any) -> Any:
    """Return a schema in which any value is allowed where it names none: it has an object with any properties there."""
    if isinstance(schema, list):
        return [_with_any(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "object" and schema.get("additionalProperties") == {} and "properties" not in schema:
        return {}
    return {key: _with_any(value) for key, value in schema.items()}


def _errors(value: Any, schema: Object, definition: str, where: str) -> Iterator[str]:
    part = {"$ref": f"#/definitions/{definition}", "definitions": schema["definitions"]}
    for error in Draft7Validator(part).iter_errors(value):
        yield f"{where}: {error.json_path}: {error.message}"


def schema_errors(dashboard: Object) -> list[str]:
    """Return the differences from the schemas of Grafana: of the dashboard, and of each panel and query by its own.

    The schema of the dashboard does not look into the options of panels and into queries.
    """
    validator = Draft7Validator(_schema("dashboard"))
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(dashboard)]
    for panel in panels_of(dashboard):
        schema, where = _schema(panel["type"]), f"panel {panel['title']}"
        errors += _errors(panel.get("options", {}), schema, "Options", where)
        if "FieldConfig" in schema["definitions"]:
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            errors += _errors(custom, schema, "FieldConfig", where)
        for target in panel.get("targets", ()):
            errors += _errors(target, _schema("prometheus"), "Dataquery", where)
    return errors
