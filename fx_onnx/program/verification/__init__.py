"""The parts of verification: comparing values, running both sides, other sizes, and finding the cause of a difference.

It imports from the folders before ``program``, and from ``program/session.py`` and ``program/save.py``. ``verify.py``
puts the parts together.
"""
