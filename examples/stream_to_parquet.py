"""A stream to Parquet: every message becomes one row of a table, exactly once, whatever is killed on the way.

    make run                                                       # a broker, in one terminal
    .venv/bin/python examples/stream_to_parquet.py                 # in another: publishes, reads, shows, ends
    .venv/bin/python examples/stream_to_parquet.py --follow        # goes on until Ctrl-C

With --directory the table and the checkpoint are kept: the next run goes on behind the last row of this one.
The cells (# %%) are those of VS Code, PyCharm and Jupytext. pika stands for the publishers you have.
"""

# %% What to read, and where to put it
import argparse
import tempfile
import time
from pathlib import Path

import pika
from pyspark.sql.functions import col, from_json

from penstock.spark.session import local_session

parser = argparse.ArgumentParser()
parser.add_argument("--uri", default="amqp://guest:guest@127.0.0.1:5672/%2F")
parser.add_argument("--stream", default="example.orders")
parser.add_argument("--directory", type=Path, help="for the table and the checkpoint; a new one if it is left out")
parser.add_argument("--orders", type=int, default=10_000, help="how many to publish first")
parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
args, _ = parser.parse_known_args()

directory = args.directory or Path(tempfile.mkdtemp(prefix="penstock-example-"))
table = str(directory / "orders")

# %% Spark on this machine; without Java, on the one that came with pip
spark = local_session("stream to parquet")

# %% A stream. Declaring it again changes nothing
with pika.BlockingConnection(pika.URLParameters(args.uri)) as connection:
    connection.channel().queue_declare(args.stream, durable=True, arguments={"x-queue-type": "stream"})

# %% Something to read: orders in JSON, published and confirmed by Spark itself
made = spark.range(args.orders).selectExpr(
    "to_json(struct(id, element_at(array('tea', 'coffee', 'cocoa'), int(id % 3) + 1) item, id % 100 price)) body"
)
made.write.format("amqp").option("uri", args.uri).option("routingKey", args.stream).mode("append").save()

# %% The stream as rows: body, routing_key, headers, offset and so on
messages = (
    spark.readStream.format("amqp")
    .option("uri", args.uri)
    .option("stream", args.stream)
    .option("startingOffsets", "earliest")  # of the first run only: then the checkpoint knows
    .option("maxRecordsPerTrigger", 50_000)  # what one batch may hold; the rest waits in the broker
    .load()
)
order = from_json(col("body").cast("string"), "id BIGINT, item STRING, price BIGINT")
orders = messages.select("offset", order.alias("order")).select("offset", "order.*")

# %% Into the table: all that is there, in batches, or for ever
writer = orders.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
writer = writer.trigger(processingTime="1 second") if args.follow else writer.trigger(availableNow=True)
query = writer.start(table)
try:
    while query.isActive:  # not one long call into Java: Ctrl-C in there prints pages
        time.sleep(0.2)
    query.awaitTermination()  # if it has failed, this says why
except KeyboardInterrupt:
    query.stop()

# %% What is in it
found = spark.read.parquet(table)
found.groupBy("item").agg({"*": "count", "price": "sum"}).orderBy("item").show()
rows = found.count()
once = found.select("offset").distinct().count()
print(f"{rows} rows with {once} offsets in {table}")
