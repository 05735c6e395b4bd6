"""The tables that the analysis writes: their columns, and the folder that contains them."""
