"""Tests of changes of rows with lifetimes."""
