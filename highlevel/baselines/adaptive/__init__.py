"""AdaptWID: window aggregation that stores tuples or partials per group, depending on memory."""
