"""Tools of the build: what writes generated files."""
