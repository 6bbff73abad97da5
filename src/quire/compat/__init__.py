"""Entry points that keep the names of other projects, each translated once."""
