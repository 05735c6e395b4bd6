"""The command ``mesh simulate``: what it takes, what it lists and what it shows."""
