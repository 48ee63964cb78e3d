"""Baselines: operators that only experiments and `wiretide compare` run, never a query.

    sort, merge             rows wait until no earlier one can come, of one input or of several
    buffering, slack        windows kept as tuples, and windows that close some time behind their end
    iop_join, sorted_join   the join of ordered inputs, and a sort of each input before it
    opob_join, opib_join    order by a sort behind OA-Join, or by a delay in front of it
    adaptive/               AdaptWID: tuples or partials for each group, whichever takes less memory

All but AdaptWID keep order, as systems without progress of their own have it. AdaptWID needs no order; panes cost less
time and memory in every case that was measured, therefore no planner selects it. `tests/test_layout.py` confines the
imports.
"""
