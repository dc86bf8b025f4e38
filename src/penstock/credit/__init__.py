"""Credit: what an upstream stage may still send, counted in integers. Knows nothing of AMQP, sockets or loops."""

from penstock.credit.hop import Hop, Spec
from penstock.credit.link import Block, Link, Stage
from penstock.credit.watermark import Gauge, Watermark

__all__ = ["Block", "Gauge", "Hop", "Link", "Spec", "Stage", "Watermark"]
