"""Groups: partials merged by the values of their group columns, in numba kernels over columns of Arrow batches.

    group columns ──► words (`key_words`) ──► dense ids 0, 1, 2, … (`ids`) ──► one accumulator array per sub-aggregate
    of a batch         64 bits each            open addressing                 (`merging`), looked up by id

`keys` performs the first two steps, `table` all steps.
"""
