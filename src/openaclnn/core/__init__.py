"""The words declarations are written in; imports nothing of the package above it."""
