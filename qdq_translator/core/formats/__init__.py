"""Text formats and file names that are read and written: caches, layer arguments, the set of files of a translation."""
