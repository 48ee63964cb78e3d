"""The error of watchlist files."""


class WatchlistError(ValueError):
    """A text is not a valid watchlist or setting. The message contains the line number if it is known."""
