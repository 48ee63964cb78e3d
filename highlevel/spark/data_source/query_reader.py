"""The data source `wiretide` with a query: one task computes the results over all files, with the inline engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from capture.errors import InputError
from capture.metrics import FILES_DAMAGED
from capture.open import open_finite
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from highlevel.spark.cluster.kernel_compilation import compile_kernels
from highlevel.spark.data_source.capture_rows import BindFiles, convert_batch
from highlevel.spark.data_source.options import Damage, SourceOptions


class WholeInput(InputPartition):
    """What the task reads: all files."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        """`inputs` have absolute paths."""
        self.inputs = inputs


class QueryReader(DataSourceReader):
    """Plan the task of a query."""

    def __init__(self, options: SourceOptions, plan: Plan, bind_files: BindFiles) -> None:
        """Compute `plan`, in which every name in FROM means the union of all files."""
        self.options = options
        self.plan = plan
        self.bind_files = bind_files

    def partitions(self) -> list[InputPartition]:
        """Return one task. Raises InputError for a file that is not a capture."""
        inputs = [replace(input_, path=Path(input_.path).absolute()) for input_ in self.bind_files(self.options.paths)]
        for input_ in inputs:
            open_finite(input_.path, "Spark")
        for leaf in self.plan.leaves:
            compile_kernels(leaf.low.kind)
        return [WholeInput(inputs)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the results. Raises InputError at the end if a capture is damaged."""
        assert isinstance(partition, WholeInput)
        run = InlineRun([self.plan], partition.inputs)
        for _, batch in run.results():
            yield convert_batch(batch, self.plan.root.columns, self.options)
        damaged = run.samples().total(FILES_DAMAGED)
        if damaged and self.options.damage == Damage.ERROR:
            paths = ", ".join(self.options.paths)
            raise InputError(
                f'{paths}: {damaged:.0f} of the captures are damaged; option("damage", "{Damage.STOP}") uses the '
                "rows before the damage"
            )
