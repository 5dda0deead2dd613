"""Stock quotes as in the papers on publisher relocation: each publisher has one symbol and a hundred subscribers.

Of these 70 % take about a tenth of the publisher's quotes, 25 % about half of them, 5 % all. A quote matches 24.5
subscriptions on average.
"""

import random
from math import log
from statistics import NormalDist

SUBSCRIBERS_PER_SYMBOL = 100
RATES = ((0.05, 0.15), (0.4, 0.6), (1, 1))  # low, medium, high: the share of the quotes that is taken
RATE_WEIGHTS = (70, 25, 5)
VOLUME_MEAN = 20_000
CHANGE = NormalDist(0, 1.5)  # from open to close, in percent
TOPIC = "stocks/quotes"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def symbol(number):
    """AAAA, BAAA, ...: four letters, different for 456,976 numbers."""
    return "".join(LETTERS[number // 26**place % 26] for place in range(4))


def subscriptions(seed, symbols):
    chance = random.Random(f"{seed} subscriptions")
    while True:
        wanted = f"class = 'STOCK' AND symbol = '{symbol(chance.randrange(symbols))}'"
        [(least, most)] = chance.choices(RATES, RATE_WEIGHTS)
        share = chance.uniform(least, most)
        tests = (
            f" AND volume > {-log(share) * VOLUME_MEAN:.0f}",
            f" AND open_close_diff > {CHANGE.inv_cdf(1 - share) if share < 1 else 0:.3f}",
            f" AND open_close_diff < {CHANGE.inv_cdf(share) if share < 1 else 0:.3f}",
        )
        yield {"topic": TOPIC, "where": wanted + (chance.choice(tests) if share < 1 else "")}


def events(seed, symbols):
    chance = random.Random(f"{seed} events")
    while True:
        number = chance.randrange(symbols)
        opened = (5 + number % 200) * chance.uniform(0.8, 1.25)
        change = chance.gauss(CHANGE.mean, CHANGE.stdev)
        closed = opened * (1 + change / 100)
        high = max(opened, closed) * chance.choice((1, 1 + chance.random() / 50))
        low = min(opened, closed) * chance.choice((1, 1 - chance.random() / 50))
        quote = {
            "class": "STOCK",
            "symbol": symbol(number),
            "open": round(opened, 2),
            "high": round(high, 2),
            "low": round(low, 2),
            "close": round(closed, 2),
            "volume": round(chance.expovariate(1 / VOLUME_MEAN)),
            "date": f"{chance.randint(1, 28)}-May-96",
            "open_close_diff": round(change, 3),
            "high_low_diff": round((high - low) / low * 100, 3),
            "close_equals_low": closed == low,
            "close_equals_high": closed == high,
        }
        yield {"topic": TOPIC, "payload": quote}
