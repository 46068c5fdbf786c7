"""Formats of files: calibration cache, layer argument, report, arrays, and the set of files of a translation."""
