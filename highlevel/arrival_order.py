"""Queries whose windows depend on the order in which rows arrive read one input: between two there is no order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from capture.errors import InputError

if TYPE_CHECKING:
    from highlevel.inline import Input
    from highlevel.plan import LeafPlan

WHY = "its windows depend on the order in which rows arrive"
WHAT = "one capture: merge captures first (mergecap -w all.pcap a.pcap b.pcap), or ask for windows over ts"


def check_one_input(leaves: Iterable[LeafPlan], inputs: Iterable[Input]) -> None:
    """Raise InputError where a leaf of such a query reads several inputs, or a folder whose files come in any order."""
    inputs = list(inputs)
    for leaf in leaves:
        fed = [each for each in inputs if each.feeds(leaf)] if leaf.low.in_arrival_order else []
        if len(fed) > 1:
            names = ", ".join(each.name for each in fed[:3]) + (", …" if len(fed) > 3 else "")
            problem = f"and there is none between inputs: got {len(fed)} ({names})"
            raise InputError(f"query {leaf.name}: {WHY}, {problem}, expected {WHAT}")
        for each in fed:
            if each.follow and not each.path.is_file():
                problem = f"and files come to {each.name} in any order"
                raise InputError(f"query {leaf.name}: {WHY}, {problem}: expected {WHAT}")
