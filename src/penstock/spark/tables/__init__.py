"""Tables: from the broker's events to what people decide from, as functions DataFrame -> DataFrame.

    windows.py    times as microseconds, the window of a time, rows in the shape of their table
    schema.py     every table's columns, with a text each; the limits that all of them share
    events.py     rows of the source -> events: the JSON as typed columns
    samples.py    what each stage did between two samples: rates, shares, service times
    blocks.py     block intervals, and which of them are open
    slices.py     blocked time by second: the common ground of chains, verdicts and depth
    chains.py     who blocked whom
    work.py       what stages did while others waited for them
    verdicts.py   the bottleneck of every connection and window, by flow/window.py
    blockers.py   what held back most
    depth.py      queues: how long, how fast, how near their limits
    syncs.py      what syncs took
    resources.py  memory, disk, what there is
    forecast.py   when a queue, the disk or the memory will be at its limit
    quality.py    what must be true of each table
    derive.py     all of them together, of a slice of time or of everything

The same functions serve the streaming job and the batch over an archive; no action, no reading and no writing is in
them. Not here: storage (spark/ledger/), the job (spark/flowjob/).
"""
