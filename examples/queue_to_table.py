"""A queue to a table: messages leave the queue only when Spark has committed the batch that holds them.

    make run                                                       # a broker, in one terminal
    .venv/bin/python examples/queue_to_table.py                    # in another: publishes, reads, shows, ends
    .venv/bin/python examples/queue_to_table.py --follow           # goes on until Ctrl-C

With --directory the table, the checkpoint and the spool are kept: the next run goes on where this one ended.
The cells (# %%) are those of VS Code, PyCharm and Jupytext. pika stands for the publishers you have.
"""

# %% What to read, and where to put it
import argparse
import tempfile
import time
from pathlib import Path

import pika
from pyspark.sql import DataFrame

from penstock.spark.session import local_session

parser = argparse.ArgumentParser()
parser.add_argument("--uri", default="amqp://guest:guest@127.0.0.1:5672/%2F")
parser.add_argument("--queue", default="example.readings")
parser.add_argument("--directory", type=Path, help="for table, checkpoint and spool; a new one if it is left out")
parser.add_argument("--readings", type=int, default=10_000, help="how many to publish first")
parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
args, _ = parser.parse_known_args()

directory = args.directory or Path(tempfile.mkdtemp(prefix="penstock-example-"))
table = directory / "readings"

# %% Spark on this machine; without Java, on the one that came with pip
spark = local_session("queue to table")


# %% A queue, and how many messages are in it
def waiting() -> int:
    with pika.BlockingConnection(pika.URLParameters(args.uri)) as connection:
        return connection.channel().queue_declare(args.queue, durable=True).method.message_count


waiting()

# %% Something to read: readings of five sensors, published and confirmed by Spark itself
made = spark.range(args.readings).selectExpr(
    "string(round(20 + sin(id / 500), 3)) body", "'application/x-reading' type", "concat('sensor-', id % 5) app_id"
)
made.write.format("amqp").option("uri", args.uri).option("routingKey", args.queue).mode("append").save()
print(f"{waiting()} messages in {args.queue}")

# %% The queue as rows. What Spark has taken and not committed stays in the broker, unacked
messages = (
    spark.readStream.format("amqp")
    .option("uri", args.uri)
    .option("queue", args.queue)
    .option("spoolDir", str(directory / "spool"))  # where a batch is kept until it is committed
    .option("maxRecordsPerTrigger", 5_000)
    .load()
)
readings = messages.selectExpr("app_id sensor", "double(string(body)) value")


# %% Into the table, a directory for each batch: a batch that is repeated takes the place of its first try
def put(batch: DataFrame, number: int) -> None:
    batch.write.mode("overwrite").parquet(str(table / f"batch={number}"))


writer = readings.writeStream.foreachBatch(put).option("checkpointLocation", str(directory / "checkpoint"))
writer = writer.trigger(processingTime="1 second") if args.follow else writer.trigger(availableNow=True)
query = writer.start()
try:
    while query.isActive:  # not one long call into Java: Ctrl-C in there prints pages
        time.sleep(0.2)
    query.awaitTermination()  # if it has failed, this says why
except KeyboardInterrupt:
    query.stop()

# %% What is in it, and what is left in the queue
found = spark.read.parquet(str(table))
found.groupBy("sensor").agg({"*": "count", "value": "avg"}).orderBy("sensor").show()
print(f"{found.count()} rows in {found.select('batch').distinct().count()} batches in {table}")
print(f"{waiting()} messages in {args.queue}")
