"""Joins of two streams over windows, without order (OA-Join, Li 2008, §7).

    rows of one side ──► key words ──► probe the other side's state ──► pairs ──► residual ──► rows out
                                 └───► own state, if somebody may still come that they meet

`spec` says what is joined, `window` who may meet whom, `oa_join` is the operator, `side_state` what it holds.
"""
