"""The short road of repeated calls: what is compared, and the code that compares."""
