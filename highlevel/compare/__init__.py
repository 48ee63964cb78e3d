"""Comparison of in-order and out-of-order processing of one query: the same arrivals, and the cost of each variant.

question     comparable plans, and their conversion to single rows
recording    rows of a query's sources, read once, with their arrival order
injection    changes of the arrival order: skew, idle times, disorder, blocks
arrivals     batches and watermarks that all variants receive
variants     plans with different operators and watermarks, each a pipeline
ordered      in-order operators that replace operators of the product
drive        runs a plan and samples its state
answers      difference between an answer and the exact one
comparison   measurement of all variants
"""
