"""One query over one input, out of order and in order: the same arrivals through both, and what each of them costs.

question     what of a plan can be compared, and the plan that answers it of single rows
recording    the rows of a query's leaves, read once, with the order in which their links brought them
injection    what is done to that order: skew, lulls, disorder, blocks
arrivals     batches and promises, as every variant gets them
variants     the ways to answer, each a pipeline
ordered      operators that keep order in place of those of the product
drive        feeds a plan, and samples what it holds
answers      how far an answer is from the exact one
comparison   all variants, measured
"""
