"""Windows of a number of rows per partition: counting, the partials of open windows, and closing.

rows of single rows ──► lives: which partition, which of its rows ──► open panes ──► windows, a life at a time
                        (`lives`, `kernels`)                          (`open_panes`)
"""
