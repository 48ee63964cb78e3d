"""Tests of whole commands and of several parts together."""
