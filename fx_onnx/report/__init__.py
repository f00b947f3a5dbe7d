"""The report of an export: its facts, its forms as HTML and Markdown, and the viewers that show a program."""
