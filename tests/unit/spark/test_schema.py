"""Schema: the columns, in Spark's words and in Arrow's."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.pandas.types import to_arrow_schema

from penstock.spark.schema import arrow_schema, message_schema


def test_the_columns_are_those_of_the_documentation():
    assert message_schema().simpleString() == (
        "struct<body:binary,exchange:string,routing_key:string,content_type:string,content_encoding:string,"
        "delivery_mode:int,priority:int,correlation_id:string,reply_to:string,expiration:string,message_id:string,"
        "timestamp:timestamp,type:string,user_id:string,app_id:string,headers:map<string,string>,offset:bigint,"
        "partition:int,redelivered:boolean>"
    )


def test_every_column_may_be_null():
    assert all(field.nullable for field in message_schema())


def test_arrow_has_exactly_the_types_spark_checks_for():
    assert arrow_schema().equals(to_arrow_schema(message_schema(), timezone="UTC"))
