"""Cases made into calls, run and judged, one after the other or in several processes.

In the order to read: `answers.py` says what a call would be told, without data; `build.py` makes a call of a case, `levels.py` cases of a
standard; `through.py` and `through_c.py` run a call, `chunks.py` a large one in pieces; `results.py` says what came of a case, `budget.py` what memory it needs; `pipeline.py`
does all this for many, `jobs.py` in processes, and `run.py` is the door. Of the rooms it imports all but `programs/`.
"""
