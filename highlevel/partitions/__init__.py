"""Windows of a number of rows per partition: counting, the partials of open windows, and closing.

single rows ──► lives: the partition and the number of each row ──► open panes ──► windows, one life after the other
                (`row_counters`, `kernels`)                         (`open_panes`)
"""
