"""Everything that is written or shown: files of a translation, report (terminal, HTML page), trtexec command, bundles.

Imports core to planning. Provides the writers and readers of a translation folder.
"""
