"""Pages of the documentation that are made of the code, and the figures kept for them: ``python -m`` each."""
