"""Everything that can be saved and resumed, at every point, compared with uninterrupted runs."""
