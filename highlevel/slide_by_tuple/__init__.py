"""Windows that slide by rows, without bins: rows wait until they are final, and one sweep makes their windows.

    pending (`runs`)                  extent (`extent`, `kernels`)
    rows that are not final  ───►     final rows that a later window still reaches, in the order of ts
    sorted runs, one per batch        ├─ left ─┼──── in the last window ────┼─ not in a window yet ─┤
                                      begin                              entered                   end

The thesis (Li 2008, §6.1.4) keeps a partial result for each point of time where the contents of a window change, and
each row updates all of them in `[ts, ts + RANGE)`: with 100 000 windows open, 100 000 updates for a row. But which
windows there are, and what they hold, is known when punctuation makes rows final, and not needed before. So rows wait
unsorted but for the runs they came in; punctuation takes out what is below it, sorts that alone, and two pointers move
over the final rows. A window is the totals of the rows between them, by group.

Totals are two stacks for each group, which merge and never take out: exact for every way to merge, sums of FLOAT
without drift. The *front* holds for each of the older rows the total of it and all that follow it there; the *back*
is one running total of the newer ones. A row that leaves is the first of the front; where the front is empty, the back
is turned into a front, once for each row. So a row costs a few merges, however many windows hold it.

`numbering` says which rows have a window, `rows` makes words of columns and back, `operator` puts it all together.
"""
