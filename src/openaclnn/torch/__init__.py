"""openaclnn for people who train models with PyTorch."""
