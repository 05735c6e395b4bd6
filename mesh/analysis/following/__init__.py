"""Following logs while they are written: whole lines as they come, into the store that analyses read."""
