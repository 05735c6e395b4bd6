"""What the two clients are made of; `mesh.client` and `mesh.blocking` are what programs use."""
