"""Tests of `highlevel/speculation/lifetimes/kernels`."""
