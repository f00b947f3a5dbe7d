"""Symbolic sizes: their expressions, texts and rules, and the table of the dynamic dims of a program."""
