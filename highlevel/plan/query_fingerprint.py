"""Fingerprints of whole queries: equal for equal plans, in every process. They identify stored states of operators."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from highlevel.aggregation import UserColumn
from highlevel.plan.plan import Plan
from lowlevel.expressions.user_functions import UserFunction
from lowlevel.spool.fingerprint import tree_text


def query_fingerprint(plan: Plan) -> str:
    """Return 32 hexadecimal digits that depend on all nodes of a query, including the names of its columns.

    The name of the query, and comments, spaces and upper or lower case of its text have no effect. Functions in Python
    are identified by name and types: the text of a function may change, as no stored state contains its results only.
    """
    return hashlib.blake2b(tree_text(plan.root, _without_code).encode(), digest_size=16).hexdigest()


def _without_code(value: object) -> object:
    if isinstance(value, UserFunction):
        return f"{value.usage} of type {value.result}"
    if isinstance(value, UserColumn):
        return value.name, value.parts
    if isinstance(value, pa.Schema):
        return tuple((field.name, str(field.type)) for field in value)
    return value
