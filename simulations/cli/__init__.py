"""The command ``mesh simulate``: its arguments, its lists and its output."""
