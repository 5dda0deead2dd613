"""The frame that all fuzzers share: what a target is, how inputs are made, what is kept, and what is told of a run.

    python -m tests.fuzz.frame                             every target for a few seconds
    python -m tests.fuzz.frame filter --seconds 600        one target, longer
    python -m tests.fuzz.frame --budget 300                300 s by the clock, shared by all, on every core
    python -m tests.fuzz.frame filter --repeat 2827        one input once more
    python -m tests.fuzz.frame --bounds                    what inputs of 64 KiB cost at most

docs/fuzzing.md explains it.
"""
