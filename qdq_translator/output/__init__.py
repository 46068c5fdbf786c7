"""The outputs and shown: the files of a translation, the report as data, in a terminal and as a page, the trtexec command.

Imports core to plan. Gives the writers and readers of a translation folder.
"""
