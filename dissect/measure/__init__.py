"""What RPCs cost and transferred: statistics, percentiles, time series, credits, files."""
