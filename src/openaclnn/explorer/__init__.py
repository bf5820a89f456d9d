"""The explorer: a page on this machine that shows what a call is told, its checks, its code and its values."""
