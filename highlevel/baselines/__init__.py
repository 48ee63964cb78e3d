"""Baselines: operators that only experiments and `wiretide compare` run, never a query.

    sort, merge             rows wait until no earlier row can arrive, for one input or several
    buffering, slack        windows stored as tuples, and windows that close a fixed time after their end
    iop_join, sorted_join   the join of ordered inputs, and a sort of each input before it
    opob_join, opib_join    order by a sort after OA-Join, or by a delay before it
    adaptive/               AdaptWID: tuples or partials for each group, depending on memory

All except AdaptWID keep rows in order, as systems without watermarks do. AdaptWID needs no order. Panes needed less
time and memory in all measurements, so no planner selects AdaptWID. `tests/documents/test_layout.py` confines the
imports.
"""
