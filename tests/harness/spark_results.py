"""Results of Spark runs, read back and put into an order."""

from pathlib import Path

import pyarrow as pa

from highlevel.plan.plan import Plan
from highlevel.spark.run_folder import result_files


def ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


def read_results(folder: Path, plan: Plan) -> pa.Table:
    return result_files.read_results(folder / "output", plan)
