"""`wiretide translate`: translate a detection rule of another system to a query."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from dashboards.command_options import Argument, Option


class Language(StrEnum):
    """The languages of rules."""

    EQL = "eql"
    SIGMA = "sigma"


class Rows(StrEnum):
    """The kinds of rows that translated queries can read."""

    PACKETS = "packets"
    FLOWS = "flows"


def translate(
    rule: Annotated[str, Argument(metavar="RULE", help="A file (.eql, .yml, .yaml), or the text of a rule in EQL.")],
    language: Annotated[
        Language | None, Option(help="eql or sigma. Default: sigma for .yml and .yaml, else eql.")
    ] = None,
    rows: Annotated[Rows, Option(help="The rows that the query reads: packets or flows.")] = Rows.PACKETS,
) -> None:
    """Translate an EQL rule or a Sigma correlation to an SQL query, and print it.

    \b
    wiretide translate rule.eql > rule.gsql
    wiretide query capture.pcap rule.gsql

    `wiretide query capture.pcap rule.eql` does both, over packets.
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from queries.query_text import EQL_SUFFIX, SIGMA_SUFFIXES

    is_file = rule.endswith((EQL_SUFFIX, *SIGMA_SUFFIXES))
    text = Path(rule).read_text("utf-8") if is_file else rule
    if language is None:
        language = Language.SIGMA if rule.endswith(SIGMA_SUFFIXES) else Language.EQL
    if language is Language.SIGMA:
        from queries.translation.sigma import sigma_to_sql

        print(sigma_to_sql(text, rows))
        return
    from queries.translation.eql import eql_to_sql

    print(eql_to_sql(text, rows))
