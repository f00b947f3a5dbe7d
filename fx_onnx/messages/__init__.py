"""What a user reads: errors, findings, their ids, log lines, progress, and the places in the user's code."""
