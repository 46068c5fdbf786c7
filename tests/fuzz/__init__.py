"""Damaged models, damaged files, interrupted writers: what may come out is a result or a sentence, nothing else.

`python -m tests.fuzz --help` runs campaigns; `tests/test_fuzz.py` runs a small one with a fixed seed.
"""
