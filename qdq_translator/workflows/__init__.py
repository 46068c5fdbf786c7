"""The functions behind the commands: translate, verify, tune, split.

Imports every folder below commands. Gives one function for each.
"""
