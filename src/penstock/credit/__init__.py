"""Credit: what an upstream stage may still send, counted in integers. Knows nothing of AMQP, sockets or loops."""

from penstock.credit.hop import Hop, Spec
from penstock.credit.link import Link, Stage
from penstock.credit.log import Block, BlockLog
from penstock.credit.watermark import Gauge, Watermark

__all__ = ["Block", "BlockLog", "Gauge", "Hop", "Link", "Spec", "Stage", "Watermark"]
