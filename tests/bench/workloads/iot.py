"""Readings with eight numbers, and filters that ask for ranges of three to five of them."""

from edgelab.bench.churn.trial import RangeLoad

TOPIC = "iot/readings"


def subscriptions(seed, selectivity):
    load = RangeLoad(seed, selectivity)
    while True:
        yield {"topic": TOPIC, "where": load.where()}


def events(seed, selectivity):
    load = RangeLoad(seed, selectivity)
    while True:
        yield {"topic": TOPIC, "payload": load.reading()}
