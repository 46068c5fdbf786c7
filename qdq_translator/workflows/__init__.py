"""The functions behind the commands: translate, verify, tune, split, deploy.

Imports all folders below commands. Provides one function for each.
"""
