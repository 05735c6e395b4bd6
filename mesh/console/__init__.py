"""The console: one picture of the mesh, drawn with rich."""
