"""The alert rules find gateways whatever their scrape jobs are called, and nothing else that is scraped."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROMTOOL = shutil.which("promtool")
CASES = """
rule_files: [edgebroker.rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="north", instance="a:9883"}', values: '1x10 0x20'}
      - {series: 'edgebroker_build_info{job="north", instance="a:9883"}', values: '1x10'}
      - {series: 'up{job="south", instance="b:9883"}', values: '1x30'}
      - {series: 'edgebroker_build_info{job="south", instance="b:9883"}', values: '1x30'}
      - {series: 'process_start_time_seconds{job="south", instance="b:9883"}', values: '0+60x30'}
      - {series: 'process_open_fds{job="south", instance="b:9883"}', values: '90x30'}
      - {series: 'process_max_fds{job="south", instance="b:9883"}', values: '100x30'}
      - {series: 'edgebroker_notices_total{job="south", instance="b:9883", level="error"}', values: '0x10 3x20'}
      - {series: 'up{job="database", instance="c:9000"}', values: '0x30'}
      - {series: 'process_start_time_seconds{job="database", instance="c:9000"}', values: '0+60x30'}
      - {series: 'process_open_fds{job="database", instance="c:9000"}', values: '90x30'}
      - {series: 'process_max_fds{job="database", instance="c:9000"}', values: '100x30'}
      - {series: 'up{job="my-edgebrokers", instance="d:9883"}', values: '0x30'}
    alert_rule_test:
      - eval_time: 20m
        alertname: EdgebrokerDown
        exp_alerts:
          - exp_labels: {severity: critical, job: north, instance: "a:9883"}
            exp_annotations: {summary: "a:9883 does not answer"}
          - exp_labels: {severity: critical, job: my-edgebrokers, instance: "d:9883"}
            exp_annotations: {summary: "d:9883 does not answer"}
      - eval_time: 20m
        alertname: EdgebrokerRestarts
        exp_alerts:
          - exp_labels: {severity: critical, job: south, instance: "b:9883"}
            exp_annotations: {summary: "b:9883 was started 15 times in 15 minutes"}
      - eval_time: 20m
        alertname: EdgebrokerDescriptors
        exp_alerts:
          - exp_labels: {severity: warning, job: south, instance: "b:9883"}
            exp_annotations: {summary: "b:9883 uses 90% of its file descriptors"}
"""


def test_no_rule_wants_a_job_of_one_name_or_mixes_jobs(root: Path) -> None:
    rules = re.findall(r"^ +expr: (.*)$", (root / "deploy/prometheus/edgebroker.rules.yml").read_text(), re.MULTILINE)
    assert len(rules) > 20
    assert [rule for rule in rules if 'job="' in rule] == []
    assert [rule for rule in rules if "by (instance" in rule] == []
    of_all_programs = [rule for rule in rules if re.search(r"\b(up|process_\w+)\b", rule)]
    assert len(of_all_programs) == 3
    assert [rule for rule in of_all_programs if "edgebroker_build_info" not in rule] == []


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_tells_of_gateways_with_jobs_of_their_own_and_of_nothing_else(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "deploy/prometheus/edgebroker.rules.yml", tmp_path)
    (tmp_path / "cases.yml").write_text(CASES)
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
