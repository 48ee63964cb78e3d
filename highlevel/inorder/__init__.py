"""What keeps order, as systems without progress of their own have it: what the experiments compare with.

    sort, merge             rows wait until no earlier one can come, of one input or of several
    buffering, slack        windows kept as tuples, and windows that close some time behind their end
    iop_join, sorted_join   the join of ordered inputs, and a sort of each input before it
    opob_join, opib_join    order by a sort behind OA-Join, or by a delay in front of it

No query runs any of it.
"""
