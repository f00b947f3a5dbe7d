"""The rows of the table of legalization that only older opsets and other runtimes need, by subject."""
