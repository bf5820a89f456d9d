"""The benchmark's door in a checkout; what it opens is `openaclnn.bench`."""
