"""What to export: the arguments of a call as a frozen request."""
