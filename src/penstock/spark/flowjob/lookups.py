"""Lookups: the few classes of Spark that PySpark asks its JVM for again and again, asked for once.

Each `F.col` looks up a class by its name, and a method in it, by two calls into the JVM; the JVM searches some hundred
jars for names that are in none. A micro-batch makes two thousand such columns: a third of what it cost. So the objects
that py4j gives back are kept where it looks first. Nothing else changes.
Upstream: own.py.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

# As PySpark 4.3 asks for them; one that a version does not ask for is kept for nothing.
NAMES = (
    "functions",
    "org.apache.spark.sql.functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.expressions.Window",
    "org.apache.spark.sql.classic.SparkSession",
)


class KnownClass(JavaClass):  # type: ignore[misc]
    """A class of the JVM that remembers its methods."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def remember(spark: SparkSession) -> None:
    """Once more does no harm."""
    jvm = spark.sparkContext._jvm
    for name in NAMES:
        if name not in vars(jvm):
            found = getattr(jvm, name)
            if isinstance(found, JavaClass):
                jvm.__dict__[name] = KnownClass(found._fqn, found._gateway_client)
