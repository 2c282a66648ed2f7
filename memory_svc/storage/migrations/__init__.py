"""Numbered migrations, one folder an engine."""
