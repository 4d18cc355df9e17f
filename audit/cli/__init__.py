"""The command line: parse, call the library, print. One module per command."""

from audit.cli.main import main

__all__ = ["main"]
