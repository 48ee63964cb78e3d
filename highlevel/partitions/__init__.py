"""Windows of a number of rows per partition: counting, the partials of open windows, and closing.

single rows ──► the life (below) and the number of each row ──► open panes ──► windows, one life after the other
                (`row_counters`, `kernels`)                     (`open_panes`)

A life of a partition is a series of its rows that are numbered from 0. After a pause of IDLE, a partition begins
another life.
"""
