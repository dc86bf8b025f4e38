"""Report: the pipeline's tables for people. One digest, shown in a file of its own and on the page.

    tables -> digest.py (one bounded JSON-able value) -> html.py (`penstock pipeline report`)
                                                      -> page.py (page.json, for the page's History view)

Upstream: the ledger's files, by pyarrow: there is no JVM in a report.  Downstream: pipeline/report.py, flowjob.py.
Not here: what the tables mean and how they are made (spark/tables/), the History view (management/page/).
"""
