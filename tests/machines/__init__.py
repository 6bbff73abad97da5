"""Everything that can be left and taken up again, at every point, against what nobody disturbed."""
