"""Proves for which sizes a captured program computes what its module computes: runs both, and compares.

``size_proof.py`` is where a size becomes a condition. It takes candidates (``size_candidates.py``, ``index_bounds.py``)
over the sizes of the inputs (``input_sizes.py``), and decides each by runs (``size_runs.py``, ``paired_runs.py``).
``data_sizes.py`` does so for sizes that depend on data. ``size_words.py``, ``dim_relations.py`` and
``dim_summaries.py`` tell the user what was found.
"""
