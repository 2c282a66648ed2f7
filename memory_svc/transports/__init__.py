"""The wires: what a caller speaks, turned into calls of the Catalogue and back. Nothing here knows what one does."""
