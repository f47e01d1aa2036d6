"""`sandbox-agent demo --attack`: a hostile repository, a model that falls for everything, and what came of it.

`attempts` is what is tried, `ground` the machine it is tried on and what changed there, `watch` makes outcomes of the
events of a run, `view` shows them, `run` does the whole. Everything goes through the ordinary code of a run.
"""
