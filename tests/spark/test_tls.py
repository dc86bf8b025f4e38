"""Spark and the broker over TLS: out to a stream and in again, by driver and executors, certificates on both sides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from tests.spark.streams import Feeder
from tests.wire.certificates import Authority, Pair, needs_openssl
from tests.wire.live import ServeProcess

pytestmark = needs_openssl


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker that wants certificates of its clients, and what a client needs for it."""

    uri: str
    plain_uri: str
    authority: Authority
    own: Pair

    def options(self, **more: str) -> dict[str, str]:
        tls = {"tls.caFile": self.authority.ca, "tls.certFile": self.own.certificate, "tls.keyFile": self.own.key}
        return {"uri": self.uri, **{name: str(file) for name, file in tls.items()}, **more}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    server, own = authority.sign("server"), authority.sign("spark")
    settings = {
        "tls.certificate": server.certificate,
        "tls.key": server.key,
        "tls.ca": authority.ca,
        "tls.client_certificates": "required",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    process = ServeProcess(tmp_path_factory.mktemp("serve"), "--listen-tls", "127.0.0.1:0", *words)
    found = re.search(r"amqps 127\.0\.0\.1:(\d+)", process.ready_line)
    assert found is not None, process.log
    yield Guarded(f"amqps://guest:guest@127.0.0.1:{found[1]}/", process.uri, authority, own)
    process.kill()


def test_rows_go_out_and_come_in_over_tls(spark: SparkSession, guarded: Guarded, name: str, tmp_path: Path):
    made = spark.range(100).selectExpr("string(id) body")
    out = guarded.options(exchange="", routingKey=name)
    plain = guarded.options(stream=name, startingOffsets="earliest")
    with Feeder(guarded.plain_uri) as feeder:
        feeder.declare(name)
    made.write.format("amqp").options(**out).mode("append").save()
    assert spark.read.format("amqp").options(**plain).load().count() == 100
    query = spark.readStream.format("amqp").options(**plain).load().writeStream
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start(str(tmp_path / "out")).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).selectExpr("int(string(body)) number").collect()
    assert sorted(row.number for row in rows) == list(range(100))


def test_a_broker_that_nobody_vouches_for_and_a_missing_certificate_are_one_clear_line(
    spark: SparkSession, guarded: Guarded, tmp_path: Path
):
    stranger = Authority(tmp_path / "stranger")
    for options, said in (
        (
            guarded.options(**{"tls.caFile": str(stranger.ca)}),
            "not accepted: self-signed certificate",
        ),
        ({"uri": guarded.uri, "tls.caFile": str(guarded.authority.ca)}, "it may want a certificate"),
    ):
        with pytest.raises(PySparkException) as caught:
            spark.read.format("amqp").options(stream="s", **options).load().count()
        assert said in str(caught.value)
        assert "guest:guest" not in str(caught.value)
