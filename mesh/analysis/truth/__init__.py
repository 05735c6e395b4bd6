"""What a simulation really did, as what follows from it, and how that compares with what logs tell."""
