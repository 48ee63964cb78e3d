"""Plain Spark SQL, for comparison: `python -m bench.plain_spark PARQUET` answers once for each line that it reads.

The program prints the seconds of each answer, and its groups, packets and bytes. The settings are those of Spark,
except for two cores, no web page, and two partitions of a shuffle, which is faster here than 200.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

CORES = 2
QUERY = """
SELECT ts div 60000000000 AS minute, srcIP, destIP, count(*) AS packets, sum(len) AS bytes
FROM packets GROUP BY 1, 2, 3
"""


def sums_of(answer: pa.Table) -> list[int]:
    """Return the number of groups, packets and bytes of an answer."""
    import pyarrow.compute as pc

    return [answer.num_rows, *(pc.sum(answer[name]).as_py() for name in ("packets", "bytes"))]


def main(path: str) -> None:
    """Answer the query over a Parquet file for each line of standard input."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{CORES}]")
    settings = {
        "ui.enabled": "false",
        "driver.memory": "2g",
        "sql.shuffle.partitions": str(CORES),
        "log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.read.parquet(path).createOrReplaceTempView("packets")
    for _ in sys.stdin:
        begin = time.perf_counter()
        answer = spark.sql(QUERY).toArrow()
        print(time.perf_counter() - begin, *sums_of(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
