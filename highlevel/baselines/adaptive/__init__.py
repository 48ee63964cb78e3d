"""AdaptWID: window aggregation that holds tuples or partials, for each group whichever takes less memory."""
