"""Windows of a number of rows of each partition: who counts, what is kept of open windows, and what closes them.

rows of single rows ──► lives: which partition, which of its rows ──► open panes ──► windows, a life at a time
                        (`lives`, `kernels`)                          (`open_panes`)
"""
