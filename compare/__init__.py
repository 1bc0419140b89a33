"""Pure functions from records to conclusions; prints nothing, reads no environment."""
