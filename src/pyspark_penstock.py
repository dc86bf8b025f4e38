"""How Spark finds the format `amqp` by itself: it imports every top-level module named `pyspark_*`.

Spark looks for the name DefaultSource, one in each module. One such module that cannot be imported hides all others, so
nothing else is here: no Java, no connection, nothing that can fail.
"""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
