"""The workload of the link matching papers: equality tests on attributes of three values.

Attribute i is tested with probability 0.98 * d^(i-1); values follow Zipf's law (s = 1), in filters and events alike.
"""

import random

# d is chosen so that of 10,000 subscriptions 292 match an event with 10 attributes, and 29 with 15. An attribute that
# is tested with probability p lets 1 - p * (1 - 49/121) of the filters pass; d solves for the product over all.
DECAY = {10: 0.8193, 15: 0.8992}
FIRST = 0.98
VALUES = (1, 2, 3)
WEIGHTS = tuple(1 / rank for rank in VALUES)
TOPIC = "gryphon/event"


def subscriptions(seed, attributes):
    chance = random.Random(f"{seed} subscriptions")
    probabilities = [FIRST * DECAY[attributes] ** i for i in range(attributes)]
    while True:
        tested = [i for i, probability in enumerate(probabilities, 1) if chance.random() < probability]
        values = chance.choices(VALUES, WEIGHTS, k=len(tested))
        where = " AND ".join(f"a{i} = {value}" for i, value in zip(tested, values, strict=True))
        yield {"topic": TOPIC, "where": where} if where else {"topic": TOPIC}


def events(seed, attributes):
    chance = random.Random(f"{seed} events")
    while True:
        values = chance.choices(VALUES, WEIGHTS, k=attributes)
        yield {"topic": TOPIC, "payload": {f"a{i}": value for i, value in enumerate(values, 1)}}
