"""Writes the files of `edgebroker bench match`: DIR/S.jsonl and DIR/E.jsonl.

    python tests/bench/generate.py gryphon --attributes 15 --subscriptions 10000 --out /tmp/gryphon
    python tests/bench/generate.py iot --selectivity 0.01 --subscriptions 100000 --out /tmp/iot
    python tests/bench/generate.py stocks --subscriptions 4000 --out /tmp/stocks
    python tests/bench/generate.py topics --subscriptions 1000000 --events 10000 --out /tmp/topics

The same options give the same bytes.
"""

import argparse
import json
from itertools import islice
from pathlib import Path

from workloads import gryphon, iot, stocks, topics


def chosen(options):
    """The subscriptions and the events that *options* ask for, without ids and without an end."""
    match options.workload:
        case "gryphon":
            module, of_which = gryphon, options.attributes
        case "iot":
            module, of_which = iot, options.selectivity
        case "stocks":
            module, of_which = stocks, max(1, options.subscriptions // stocks.SUBSCRIBERS_PER_SYMBOL)
        case "topics":
            module, of_which = topics, options.subscriptions
    return module.subscriptions(options.seed, of_which), module.events(options.seed, of_which)


def write(path, lines):
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--subscriptions", type=positive, default=10_000, metavar="N")
    common.add_argument("--events", type=positive, default=1_000, metavar="N")
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="workload", required=True)
    about = {"parents": [common], "formatter_class": argparse.RawDescriptionHelpFormatter}
    gryphons = kinds.add_parser("gryphon", description=gryphon.__doc__, **about)
    gryphons.add_argument("--attributes", type=int, choices=sorted(gryphon.DECAY), default=10)
    iots = kinds.add_parser("iot", description=iot.__doc__, **about)
    iots.add_argument("--selectivity", type=float, default=0.001, help="share of the filters that an event matches")
    kinds.add_parser("stocks", description=stocks.__doc__, **about)
    kinds.add_parser("topics", description=topics.__doc__, **about)
    options = parser.parse_args()
    subscriptions, events = chosen(options)
    options.out.mkdir(parents=True, exist_ok=True)
    numbered = ({"id": number, **line} for number, line in enumerate(islice(subscriptions, options.subscriptions), 1))
    write(options.out / "S.jsonl", numbered)
    write(options.out / "E.jsonl", islice(events, options.events))


if __name__ == "__main__":
    main()
