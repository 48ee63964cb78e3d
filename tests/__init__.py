"""Tests of the project, laid out like the folders they test."""
