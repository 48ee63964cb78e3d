"""The folder of a run in an object store with the protocol of S3."""
