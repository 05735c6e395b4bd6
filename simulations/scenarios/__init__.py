"""What is done to a mesh: each module has one scenario, a function from a `Federation` to nothing."""
