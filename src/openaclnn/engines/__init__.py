"""Kernels, one package per engine. They know plans and addresses, and nothing of documents or statuses."""
