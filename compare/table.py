"""ComparisonRow and Comparison: what differs, as a table in execution order."""
