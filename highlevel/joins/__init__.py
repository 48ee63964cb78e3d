"""Joins of two streams over windows, without order (OA-Join, Li 2008, §7).

    rows of one side ──► key words ──► probe the other side's state ──► pairs ──► residual ──► rows out
                                 └───► own state, if a partner may still arrive

`spec` describes the join, and `window` the times that match. `oa_join` is the operator, `side_state` its state.
"""
