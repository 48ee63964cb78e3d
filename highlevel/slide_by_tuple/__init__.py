"""Windows that slide by rows: rows wait until they are final, and one sweep computes their windows.

    pending (`runs`)                  extent (`extent`, `kernels`)
    rows that are not final  ───►     final rows that a later window contains, in the order of ts
    sorted runs, one per batch        ├─ left ─┼──── in the last window ────┼─ not in a window yet ─┤
                                      begin                              entered                   end

The thesis (Li 2008, §6.1.4) stores a partial result for each time at which the contents of a window change. A row
updates all partial results in `[ts, ts + RANGE)`: 100 000 updates with 100 000 open windows. But the windows and their
contents are known, and needed, only when a punctuation makes rows final. So rows wait in sorted runs. A punctuation
removes the rows below its watermark, sorts only these rows, and moves two pointers over the final rows. The result of a
window is the totals of the rows between the pointers, by group.

The totals of a group are two stacks. Values are only merged into them and never subtracted. So totals are exact for
every merge rule, and rounding errors of FLOAT sums do not accumulate. The *front* stores for each older row the total
of the row and all following rows of the front. The *back* is one running total of the newer rows. A row that leaves is
the first of the front. If the front is empty, the back becomes the front. This happens once per row. So a row needs a
few merges, independent of the number of windows that contain the row.

`numbering` selects the rows that have a window, `rows` converts columns to words, `operator` combines these modules.
"""
