"""The functions behind the commands: translate, verify, tune, split, deploy.

Imports from all lower folders. Provides one function per command.
"""
