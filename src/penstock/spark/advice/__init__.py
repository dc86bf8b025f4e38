"""Advice: which settings would serve the measured load better, and why.

The tables say what the load is and what work takes; the twin (penstock.flow.twin) is fitted to them; thousands of
settings are simulated on Spark; what is left is the few that nothing else beats, each with a reason, or the word that
nothing helps.  Upstream: pipeline/advise.py.  Downstream: the ledger's tables, the twin.

    observed.py  tables to plain values: who published and consumed how fast, who held whom back
    clients.py   what only the running broker knows: settings, windows, prefetches
    load.py      both of them to the twin's load
    grid.py      settings that are worth a try
    sweep.py     all of them through the twin, on Spark
    rank.py      the front of throughput, latency and memory; what is best for a goal
    words.py     why, in a sentence; what credit cannot cure
    adviser.py   all of it in order, and the result as one document
    knob.py      a setting or a queue's marks, read, set and set back over HTTP
    change.py    a setting put to use, and what came of it
    applied.py   what was set, noted before it is, and set back by one command
"""
