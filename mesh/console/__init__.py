"""What a person sees: one picture of the mesh, drawn with rich."""
