"""Documentation pages generated from the code, and the figures kept for them: ``python -m`` each."""
