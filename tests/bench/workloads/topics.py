"""MQTT topics of many buildings, site/building/floor/room/device/measurement, and filters with `+` and `#` on them.

There are as many topics as subscriptions, so that events rarely have the topic of an earlier one.
"""

import random

CITIES = (
    "berlin bilbao dublin geneva gothenburg krakow lille linz lyon malmo milan porto riga tampere turin zagreb".split()
)
DEVICES = ("hvac", "light", "meter")
MEASUREMENTS = ("temperature", "humidity", "power", "alarm")
ROOMS, FLOORS, BUILDINGS = 20, 5, 4

# Levels of a topic that stay; `+` and `#` stand for themselves. Shapes that match many topics are rare, as in life: an
# event matches between four and eight filters, of a hundred as of a million.
SHAPES = {
    (0, 1, 2, 3, 4, 5): 60,  # one measurement of one device
    (0, 1, 2, 3, "+", 5): 20,  # of all devices in a room
    (0, 1, 2, 3, "#"): 15,  # all of a room
    (0, 1, 2, "+", "+", 5): 1,
    (0, 1, 2, "#"): 0.4,
    (0, 1, "+", "+", "+", 5): 0.2,
    (0, 1, "#"): 0.05,
    (0, "+", "+", "+", "+", 5): 0.05,
    ("+", "+", "+", "+", 4, 5): 0.001,  # one measurement everywhere
}


def random_topic(chance, count):
    """The levels of one of *count* topics: they fill rooms, then floors, buildings and sites."""
    number = chance.randrange(count)
    number, measurement = divmod(number, len(MEASUREMENTS))
    number, device = divmod(number, len(DEVICES))
    number, room = divmod(number, ROOMS)
    number, floor = divmod(number, FLOORS)
    site, building = divmod(number, BUILDINGS)
    return (
        f"{CITIES[site % len(CITIES)]}-{site // len(CITIES) + 1:02d}",
        f"building-{building + 1}",
        f"floor-{floor}",
        f"room-{room + 1:02d}",
        DEVICES[device],
        MEASUREMENTS[measurement],
    )


def subscriptions(seed, count):
    chance = random.Random(f"{seed} subscriptions")
    shapes, weights = list(SHAPES), list(SHAPES.values())
    while True:
        levels = random_topic(chance, count)
        [shape] = chance.choices(shapes, weights)
        yield {"topic": "/".join(levels[part] if isinstance(part, int) else part for part in shape)}


def events(seed, count):
    chance = random.Random(f"{seed} events")
    while True:
        yield {"topic": "/".join(random_topic(chance, count)), "payload": {"value": round(chance.uniform(0, 100), 1)}}
