"""The parts of the two clients. Programs use `mesh.clients.client` and `mesh.clients.blocking_client`."""
