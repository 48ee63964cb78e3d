"""The error of watchlist files."""


class WatchlistError(ValueError):
    """A text that is not a watchlist. The message contains the number of the line."""
