"""What a pair that differs has to tell beyond the columns: rarer figures, and one explanation of the difference."""
