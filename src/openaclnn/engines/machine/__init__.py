"""Machine code made at run time, through llvmlite: written word by word, compiled once, called as builtins.

The CPU engine's kernels, the GPU engine's launches and the short way of repeated calls are made with this. Its
modules import llvmlite, so whoever can do without imports them when they are needed.
"""
