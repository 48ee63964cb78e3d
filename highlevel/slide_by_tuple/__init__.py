"""Windows that slide by rows: rows wait until they are final, and one sweep computes their windows.

    pending (`runs`)                  extent (`extent`, `kernels`)
    rows that are not final  ───►     final rows that a later window still reaches, in the order of ts
    sorted runs, one per batch        ├─ left ─┼──── in the last window ────┼─ not in a window yet ─┤
                                      begin                              entered                   end

The thesis (Li 2008, §6.1.4) keeps a partial result for each time at which the contents of a window change. A row
updates all of them in `[ts, ts + RANGE)`: 100 000 updates with 100 000 open windows. But the windows and their contents
are known, and needed, only when a punctuation makes rows final. So rows wait in their sorted runs. A punctuation
removes the rows below it, sorts only these, and moves two pointers over the final rows. A window is the totals of the
rows between them, by group.

Totals are two stacks for each group, which only merge and never subtract. So they are exact for every merge rule, and
sums of FLOAT do not drift. The *front* stores for each older row the total of the row and all following rows of the
front. The *back* is one running total of the newer rows. A row that leaves is the first of the front. If the front is
empty, the back becomes the front, once per row. So a row costs a few merges, independent of the number of windows that
contain it.

`numbering` selects the rows that have a window, `rows` converts columns to words, `operator` combines the parts.
"""
