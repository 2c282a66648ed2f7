"""Memories, episodes and profiles: what may be asked of them."""
