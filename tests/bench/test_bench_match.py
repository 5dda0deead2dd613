"""`edgebroker bench match` keeps its contract: what goes in, what comes out, and that the answers are right."""

import hashlib
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from edgebroker.cli.call_durations import Durations
from edgebroker.filters import Filter
from edgebroker.matching.pst import LinkDecision, Pst
from edgebroker.topics import TopicFilter
from edgelab.bench import command

CONTRACT = {
    "match_us",
    "decide_us",
    "end_to_end_us",
    "insert_us",
    "remove_us",
    "bytes_per_subscription",
    "nodes",
    "match_steps",
    "decide_steps",
    "matches",
    "digest",
}
PATIENCE_S = 60

TOPIC_FILTERS = ["t/#", "t/+", "t/a", "t/b/#", "+/a", "#", "u/a"]
TOPICS = ["t", "t/a", "t/b", "t/b/c", "u/a", "$t/a"]


def written(path, lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def run(tmp_path, subscriptions, events, *options):
    """Run the command in this process."""
    files = [
        f"--subscriptions={written(tmp_path / 'S.jsonl', subscriptions)}",
        f"--events={written(tmp_path / 'E.jsonl', events)}",
    ]
    return CliRunner().invoke(command, ["match", *files, "--rounds", "1", *options])


def outcome(tmp_path, subscriptions, events, *options):
    """The JSON object of a run that must succeed."""
    done = run(tmp_path, subscriptions, events, "--json", *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def random_where(chance):
    tests = [
        f"a = {chance.randrange(3)}",
        f"b BETWEEN {chance.randrange(5)} AND {chance.randrange(5, 9)}",
        f"c > {chance.random():.2f}",
        f"d IN ('x', 'y{chance.randrange(3)}')",
        "e IS NULL",
        f"$level2 = '{chance.choice('ab')}'",
    ]
    joint = chance.choice([" AND ", " AND ", " OR "])
    return joint.join(chance.sample(tests, chance.randint(1, 3)))


def random_subscriptions(chance, count):
    """Subscriptions with ids of every size, in no order; some without `where`, some without `link`."""
    for id_ in chance.sample(range(-(10**6), 10**20, 10**15 + 7), count):
        fields = {"id": id_, "topic": chance.choice(TOPIC_FILTERS)}
        if chance.random() < 0.8:
            fields["where"] = random_where(chance)
        if chance.random() < 0.8:
            fields["link"] = chance.randrange(5)
        yield fields


def random_events(chance, count):
    for _ in range(count):
        payload = {
            "a": chance.randrange(3),
            "b": chance.choice([chance.randrange(10), "no number"]),
            "c": chance.random(),
            "d": chance.choice(["x", "y1", None]),
            "e": {"deep": 1},
        }
        kept = chance.sample(sorted(payload), chance.randint(0, 5))
        yield {"topic": chance.choice(TOPICS), "payload": {key: payload[key] for key in kept}}


def accepts(subscription, event):
    """Whether the subscription wants the event, test by test; no tree and no extractor takes part."""
    if not TopicFilter.parse(subscription["topic"]).matches(event["topic"]):
        return False
    if "where" not in subscription:
        return True
    levels = dict(enumerate(event["topic"].split("/"), 1))
    values = {key: value for key, value in event["payload"].items() if not isinstance(value, dict)}
    values["$level2"] = levels.get(2)
    if "e" in event["payload"]:
        values["e"] = "anything but NULL"  # an object in the payload; e is asked only whether it is NULL
    return any(
        all(test.accepts(values.get(test.attribute)) for test in predicate)
        for predicate in Filter.parse(subscription["where"]).predicates
    )


def expected_digest(subscriptions, events):
    found = hashlib.sha256()
    matches = 0
    for index, event in enumerate(events):
        ids = sorted(one["id"] for one in subscriptions if accepts(one, event))
        matches += len(ids)
        found.update(f"{index}:{','.join(map(str, ids))}\n".encode())
    return found.hexdigest(), matches


def test_digest_and_matches_are_those_of_brute_force(tmp_path, chance):
    subscriptions, events = list(random_subscriptions(chance, 150)), list(random_events(chance, 150))
    found = outcome(tmp_path, subscriptions, events)
    digest, matches = expected_digest(subscriptions, events)
    assert matches > 1_000
    assert (found["digest"], found["matches"]) == (digest, matches)
    assert found["decide_agrees"] is True


def test_pure_gives_the_same_answers(tmp_path, chance):
    subscriptions, events = list(random_subscriptions(chance, 40)), list(random_events(chance, 40))
    here = outcome(tmp_path, subscriptions, events, "--links", "9")
    program = [sys.executable, "-m", "edgebroker", "bench", "match", "--pure", "--json", "--rounds=1", "--links=9"]
    files = [f"--subscriptions={tmp_path / 'S.jsonl'}", f"--events={tmp_path / 'E.jsonl'}"]
    done = subprocess.run([*program, *files], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    pure = json.loads(done.stdout)
    assert pure["kernel"] == "pure"
    same = ("digest", "matches", "subscriptions", "events", "links")
    assert [pure[name] for name in same] == [here[name] for name in same]


def test_the_object_has_every_name_of_the_contract(tmp_path):
    found = outcome(tmp_path, [{"id": 7, "topic": "t/#"}], [{"topic": "t/x", "payload": {}}])
    assert found.keys() >= CONTRACT
    assert all(found[name] >= 0 for name in CONTRACT - {"digest"})
    assert (found["matches"], found["subscriptions"], found["events"], found["rounds"]) == (1, 1, 1, 1)
    assert found["digest"] == hashlib.sha256(b"0:7\n").hexdigest()


def test_the_table_shows_the_digest_for_people(tmp_path):
    done = run(tmp_path, [{"id": 7, "topic": "t/#"}], [{"topic": "t/x", "payload": {}}])
    assert done.exit_code == 0
    assert done.output.startswith("1 subscriptions, 1 events, 1 links, 1 rounds")
    assert hashlib.sha256(b"0:7\n").hexdigest() in done.output


def test_without_links_there_are_as_many_as_the_file_says(tmp_path):
    events = [{"topic": "t", "payload": {}}]
    assert outcome(tmp_path, [{"id": 1, "topic": "t", "link": 6}, {"id": 2, "topic": "t"}], events)["links"] == 7
    assert outcome(tmp_path, [{"id": 1, "topic": "t"}, {"id": 2, "topic": "t"}], events)["links"] == 1
    assert outcome(tmp_path, [{"id": 1, "topic": "t"}], events, "--links", "70")["links"] == 70


def test_null_and_blank_lines_stand_for_nothing(tmp_path):
    subscriptions = ["\n", {"id": 1, "topic": "t", "where": None, "link": None}, "\n"]
    found = outcome(tmp_path, subscriptions, [" \n", {"topic": "t", "payload": {}}])
    assert (found["matches"], found["events"]) == (1, 1)


def test_an_unknown_key_is_told_once_and_ignored(tmp_path):
    lines = [{"id": n, "topic": "t", "were": "a = 1"} for n in range(3)]
    done = run(tmp_path, lines, [{"topic": "t", "payload": {}}], "--json")
    assert json.loads(done.stdout)["matches"] == 3
    known = '"client", "id", "link", "topic", "where"'
    assert done.stderr == f'{tmp_path}/S.jsonl:1: key "were" is ignored; known are {known}\n'


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense\n", "no JSON: Expecting value at column 1"),
        ("[1, 2]\n", "a JSON object belongs here, not [1, 2]"),
        ({"topic": "t"}, '"id" must be a whole number, not null'),
        ({"id": True, "topic": "t"}, '"id" must be a whole number, not true'),
        ({"id": 1, "topic": "t"}, "id 1 is already the subscription of line 1; ids must differ"),
        ({"id": 2}, '"topic" is missing'),
        ({"id": 2, "topic": 3}, '"topic" must be a text, not 3'),
        ({"id": 2, "topic": "a/#/b"}, "\"topic\": '#' must be the whole last level: 'a/#/b'"),
        ({"id": 2, "topic": "t", "where": "a >"}, '"where": column 4: '),
        ({"id": 2, "topic": "t", "where": 5}, '"where" must be a text, not 5'),
        ({"id": 2, "topic": "t", "link": -1}, '"link" must be a whole number from 0 to 7 (--links is 8), not -1'),
        ({"id": 2, "topic": "t", "link": 8}, '"link" must be a whole number from 0 to 7 (--links is 8), not 8'),
    ],
)
def test_a_bad_subscription_is_one_line_with_its_place_and_exit_code_2(tmp_path, line, complaint):
    done = run(tmp_path, [{"id": 1, "topic": "t"}, line], [{"topic": "t", "payload": {}}], "--links", "8")
    assert done.exit_code == 2
    assert done.output.startswith(f"Error: {tmp_path}/S.jsonl:2: {complaint}")
    assert done.output.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"payload": {}}, '"topic" is missing'),
        ({"topic": "t/+", "payload": {}}, "\"topic\": a topic to publish to has no wildcards: 't/+'"),
        ({"topic": "t"}, '"payload" is missing; it is the JSON object that is published, {} if it is empty'),
        ('{"topic": "t", "payload": {"a": NaN}}\n', "no JSON: NaN is no number in JSON"),
        ('{"topic": "t", "payload": {"a": 1e999}}\n', '"payload" cannot be published: '),
        ('{"topic": "t", "payload": {"a": "\\ud800"}}\n', '"payload" cannot be published: '),
    ],
)
def test_a_bad_event_is_one_line_with_its_place_and_exit_code_2(tmp_path, line, complaint):
    done = run(tmp_path, [{"id": 1, "topic": "t"}], [{"topic": "t", "payload": {}}, line])
    assert done.exit_code == 2
    assert done.output.startswith(f"Error: {tmp_path}/E.jsonl:2: {complaint}")
    assert done.output.count("\n") == 1


def test_an_engine_that_contradicts_itself_is_reported_with_exit_code_1(tmp_path, monkeypatch):
    class Contradicting(Pst):
        def decide(self, *_):
            return LinkDecision(yes=0, steps=0)

    monkeypatch.setattr("edgelab.bench.match.Pst", Contradicting)
    done = run(tmp_path, [{"id": 1, "topic": "t"}], [{"topic": "t", "payload": {}}], "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["decide_agrees"] is False
    assert "decide and match contradict each other" in done.stderr


def test_quantiles_are_durations_that_occurred():
    spent = Durations()
    with pytest.raises(ValueError, match="no durations"):
        spent.median_us()
    spent.ns.extend(range(1_000, 101_000, 1_000))
    assert (spent.median_us(), spent.p99_us(), spent.quantile_us(1), spent.quantile_us(0)) == (50, 99, 100, 1)


def test_empty_files_are_refused(tmp_path):
    event, subscription = {"topic": "t", "payload": {}}, {"id": 1, "topic": "t"}
    done = run(tmp_path, [], [event])
    assert (done.exit_code, done.output) == (2, f"Error: {tmp_path}/S.jsonl: there is no subscription in this file\n")
    done = run(tmp_path, [subscription], ["\n"])
    assert (done.exit_code, done.output) == (2, f"Error: {tmp_path}/E.jsonl: there is no event in this file\n")
