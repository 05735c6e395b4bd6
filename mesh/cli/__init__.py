"""The command ``mesh``."""

from mesh.cli.app import main

__all__ = ["main"]
