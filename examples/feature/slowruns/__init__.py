"""`expectedWithin`: a condition and a metric about runs that take longer than expected."""
