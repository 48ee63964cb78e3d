"""The Spark engines, the only modules that import pyspark. Raises MissingPackageError without pyspark."""

from capture.errors import MissingPackageError

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingPackageError("pyspark", "spark", "an engine other than inline") from error
