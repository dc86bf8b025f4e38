"""A table to an exchange: every row becomes one message, confirmed by the broker; a repeated batch doubles none.

    make run                                                       # a broker, in one terminal
    .venv/bin/python examples/table_to_exchange.py                 # in another: a table, publishes it, shows, ends
    .venv/bin/python examples/table_to_exchange.py --follow        # publishes what is added to the table, until Ctrl-C

With --directory the table and the checkpoint are kept: the next run publishes only the rows it adds itself.
The cells (# %%) are those of VS Code, PyCharm and Jupytext. pika stands for the consumers you have.
"""

# %% What to publish, and where to
import argparse
import tempfile
import time
from pathlib import Path

import pika

from penstock.spark.session import local_session

parser = argparse.ArgumentParser()
parser.add_argument("--uri", default="amqp://guest:guest@127.0.0.1:5672/%2F")
parser.add_argument("--exchange", default="example.prices")
parser.add_argument("--directory", type=Path, help="for the table and the checkpoint; a new one if it is left out")
parser.add_argument("--rows", type=int, default=9_000, help="how many rows to add to the table first")
parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
args, _ = parser.parse_known_args()

directory = args.directory or Path(tempfile.mkdtemp(prefix="penstock-example-"))
table = str(directory / "prices")

# %% Spark on this machine; without Java, on the one that came with pip
spark = local_session("table to exchange")

# %% A topic exchange, with one queue for the price of tea and one for all prices
with pika.BlockingConnection(pika.URLParameters(args.uri)) as connection:
    channel = connection.channel()
    channel.exchange_declare(args.exchange, "topic", durable=True)
    for queue, pattern in ((f"{args.exchange}.tea", "price.tea"), (f"{args.exchange}.all", "price.*")):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, args.exchange, pattern)

# %% A table, or some more rows in it
added = spark.range(args.rows).selectExpr(
    "id", "element_at(array('tea', 'coffee', 'cocoa'), int(id % 3) + 1) item", "id % 100 price"
)
added.write.mode("append").parquet(table)

# %% Its rows as messages: a column body, and the columns that say where to and with which properties
messages = (
    spark.readStream.schema(added.schema)
    .parquet(table)
    .selectExpr(
        "to_json(struct(id, price)) body",
        "concat('price.', item) routing_key",
        "'application/json' content_type",
        "map('unit', 'cent') headers",
    )
)

# %% Into the exchange. A batch counts only when the broker has confirmed all of it
writer = (
    messages.writeStream.format("amqp")
    .option("uri", args.uri)
    .option("exchange", args.exchange)
    .option("checkpointLocation", str(directory / "checkpoint"))
)
writer = writer.trigger(processingTime="1 second") if args.follow else writer.trigger(availableNow=True)
query = writer.start()
try:
    while query.isActive:  # not one long call into Java: Ctrl-C in there prints pages
        time.sleep(0.2)
    query.awaitTermination()  # if it has failed, this says why
except KeyboardInterrupt:
    query.stop()

# %% What came out of it
with pika.BlockingConnection(pika.URLParameters(args.uri)) as connection:
    channel = connection.channel()
    for queue in (f"{args.exchange}.tea", f"{args.exchange}.all"):
        print(f"{channel.queue_declare(queue, passive=True).method.message_count} messages in {queue}")
    method, properties, body = channel.basic_get(f"{args.exchange}.tea", auto_ack=True)
    print(f"the first: {body.decode()} as {properties.content_type}, in {properties.headers['unit']}s")
