"""The key of a query's results. The tests detect a key that two rows share, and a key that the results lack."""

import pytest

from highlevel.plan.keys import Key, key_of
from queries.gsql import compile_query

G = "SELECT srcIP, destPort AS port, count(*) AS n FROM M [RANGE 10 s] GROUP BY srcIP, destPort"
JOIN = "SELECT a.window_end AS at, a.srcIP AS host, b.n AS m{} FROM ({g}) a [RANGE 0 s, WA window_end] {kind} ({g}) b "
ON = "[RANGE {r} s, WA window_end] ON a.srcIP = b.srcIP AND a.port = b.port"


def joined(kind: str, more: str, reach: int = 0) -> str:
    return JOIN.format(more, g=G, kind=kind) + ON.format(r=reach)


KEYS = [
    (G, Key(("window_end", "srcIP", "port"))),
    (f"{G} HAVING count(*) > 3", Key(("window_end", "srcIP", "port"))),
    (f"{G} ORDER BY n DESC LIMIT 3", Key(("window_end", "srcIP", "port"))),
    (f"{G} FILL 0", Key(("window_end", "srcIP", "port"))),
    ("SELECT count(*) AS n FROM M [RANGE 10 s] GROUP BY srcIP", Key(("window_end",), ("srcIP",))),
    ("SELECT srcIP, count(*) AS n FROM M GROUP BY srcIP", Key(("srcIP",))),
    (f"SELECT window_end AS at, srcIP AS host, port, n FROM ({G})", Key(("at", "host", "port"))),
    (f"SELECT window_end, srcIP, n FROM ({G})", Key(("window_end", "srcIP"), ("port",))),
    (f"SELECT DISTINCT window_end, n FROM ({G})", Key(("window_end", "n"))),
    (f"SELECT srcIP, sum(n) AS n FROM ({G}) [RANGE 1 minute] GROUP BY srcIP", Key(("window_end", "srcIP"))),
    (joined("JOIN", ", a.port AS port"), Key(("at", "host", "port"))),
    (joined("LEFT JOIN", ", a.port AS port"), Key(("at", "host", "port"))),
    (joined("JOIN", ", a.port AS port", 20), Key(("at", "host", "port"), ("window_end",))),
    (joined("JOIN", ""), Key(("at", "host"), ("port",))),
    ("SELECT ts, srcIP FROM M", None),
    (f"SELECT window_end, n FROM ({G}) UNION ALL SELECT window_end, n FROM ({G})", None),
    ("SELECT p.ts, p.srcIP FROM M p [RANGE 1 s] JOIN M q [RANGE 1 s] ON p.srcIP = q.destIP", None),
]


@pytest.mark.parametrize(("sql", "key"), KEYS, ids=[sql for sql, _ in KEYS])
def test_the_key_of_the_results(sql: str, key: Key | None) -> None:
    found = key_of(compile_query(sql).root)
    if key is None:
        assert found is None
        return
    assert found is not None
    assert (set(found.columns), {name.rpartition(".")[2] for name in found.missing}) == (
        set(key.columns),
        set(key.missing),
    )


@pytest.mark.parametrize(
    "sql", [sql for sql, key in KEYS if " LIMIT " not in sql and key is not None and "RANGE" in sql]
)
def test_changes_have_the_key_of_the_results(sql: str) -> None:
    assert key_of(compile_query(f"{sql} EMIT CHANGES").root) == key_of(compile_query(sql).root)
