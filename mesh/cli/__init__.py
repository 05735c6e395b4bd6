"""The command ``mesh``."""
