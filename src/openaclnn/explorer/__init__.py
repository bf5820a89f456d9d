"""The explorer: a page on this machine that shows what a call is told, its checks, its code and its values.

`server.py` serves it, `answers.py` answers, `chinese.py` has the Chinese form of what declarations say, by the words of
`chinese.toml`; `page/` is what the browser gets.
"""
