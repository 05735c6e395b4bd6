"""What the two clients are made of; `mesh.clients.client` and `mesh.clients.blocking_client` are what
programs use."""
