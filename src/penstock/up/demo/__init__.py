"""Demo: the load of `penstock up --demo`, a small shop whose parts get into each other's way.

Publishers and consumers with names (cast.py) on queues of their own (scenery.py), each on a connection and a thread of
its own (play.py), built on penstock.client as any program could be. It is there to be looked at: within a minute the
page, `penstock why`, `penstock top` and the tables have blocks, verdicts and a forecast to show.
Bounded: every queue has a maximum, is deleted at the end, and expires should the end not come.
Not here: load for measuring (perf/).
"""
