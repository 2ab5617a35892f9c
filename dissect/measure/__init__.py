"""What RPCs cost and moved: statistics, percentiles, time series, credits, files."""
