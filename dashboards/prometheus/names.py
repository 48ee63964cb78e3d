"""Convert the names of queries and columns to names that Prometheus accepts."""

from __future__ import annotations

import re


def prometheus_name(text: str) -> str:
    """Return `text` in snake_case, with only letters, digits and underscores. Raises ValueError if the result is empty.

    >>> [prometheus_name(text) for text in ("srcIP", "Q1-1", "count(*)", "sum(len) * 8", "__name__")]
    ['src_ip', 'q1_1', 'count', 'sum_len_8', 'name']
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    name = re.sub(r"[^a-zA-Z0-9]+", "_", words).strip("_").lower()
    if not name:
        raise ValueError(
            f"got the name {text!r}, expected at least one letter or digit (a-z, A-Z, 0-9) for the Prometheus name; "
            "rename the query or the column (columns: AS name)"
        )
    return name


def label_name(text: str) -> str:
    """Return `text` as a label name, which does not begin with a digit.

    >>> [label_name(text) for text in ("destPort", "8021q")]
    ['dest_port', '_8021q']
    """
    name = prometheus_name(text)
    return f"_{name}" if name[0].isdigit() else name


class Names:
    """Reserved names and their owners. An error about equal names states both owners."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._owners: dict[str, str] = {}

    def reserve(self, name: str, owner: str) -> None:
        """Reserve `name` for `owner`. Raises ValueError if it has another owner."""
        first_owner = self._owners.setdefault(name, owner)
        if first_owner != owner:
            raise ValueError(
                f"{first_owner} and {owner} would both have the {self._kind} name {name!r}; rename one of them "
                "(columns: AS name)"
            )
