"""Baselines: operators that only experiments and `wiretide compare` run, never a query.

    sort, merge             one input or several; rows wait until no earlier row can arrive
    buffering, slack        windows stored as tuples, and windows that close a fixed time after their end
    iop_join, sorted_join   a join of ordered inputs; the same join after a sort of each input
    opob_join, opib_join    OA-Join with ordered results: by a sort after it, or by a delay before it
    adaptive/               AdaptWID: stores the tuples or the partials of a group, whichever are smaller

All operators except AdaptWID keep rows in order, as systems without watermarks do. AdaptWID needs no order. No planner
selects it, because panes needed less time and memory in all measurements. `tests/documents/test_layout.py` checks that
only experiments import these modules.
"""
