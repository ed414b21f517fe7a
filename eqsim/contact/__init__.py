"""Contact and all other constraints: points, rows, and the convex problem."""
