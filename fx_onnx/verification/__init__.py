"""The parts of verification: comparing values, running both sides, other sizes, and finding the cause of a difference.

It imports from the folders before ``program``, and from ``session.py``, ``input_binding.py`` and ``save.py`` there.
``verify.py`` puts the parts together.
"""
