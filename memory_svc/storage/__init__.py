"""Storage: an engine behind one interface."""
