"""A Spark session that is quiet, listens on loopback only and leaves nothing behind."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import edgebroker
from edgebroker.errors import EdgebrokerError

from .java import Java, install_shim

DRIVER_MEMORY = "1g"  # 10 million records need about half of it; more spills to disk
SHUFFLE_PARTITIONS_LOCAL = 4  # Spark's 200 are for clusters: each costs 5 ms even when it is empty
LAST_WORDS_LINES = 12


class SparkFailed(EdgebrokerError):
    """Spark did not start; the message has its last words."""


@contextmanager
def spark_session(java: Java, master: str = "local[*]") -> Iterator[SparkSession]:
    """Spark on *java*; everything is gone at the end. Raises SparkFailed if it cannot be started.

    What Spark and Java print goes to a file, whose end is shown if they fail: `edgeanalytics` speaks for itself.
    """
    with tempfile.TemporaryDirectory(prefix="edgeanalytics-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        home = install_shim(java, scratch / "java") if java.needs_shim else java.home
        os.environ["JAVA_HOME"] = str(home)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1" if is_local(master) else os.environ.get("SPARK_LOCAL_IP", "")
        words = scratch / "spark.log"
        try:
            with stderr_to(words):
                spark = start(scratch, master)
        except Exception as failure:
            raise SparkFailed(f"Spark did not start with {home}: {failure}\n{last_words(words)}") from failure
        try:
            yield spark
        finally:
            spark.stop()


def start(scratch: Path, master: str) -> SparkSession:
    """The session, with every setting that differs from Spark's defaults."""
    logging = scratch / "log4j2.properties"
    logging.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %p %c{1}: %m%n\n",
        encoding="utf-8",
    )
    java_options = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.local.dir": str(scratch / "blocks"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(package_folders()),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS_LOCAL),
            # Most reports last seconds: the optimising compiler and collector threads cost more than they win. Measured
            # on 200,000 records and 2 cores: 17 s instead of 33 s.
            "spark.driver.extraJavaOptions": f"{java_options} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # It measures between stages in order to plan better: longer than what there is to win on one machine.
            "spark.sql.adaptive.enabled": "false",
        }
    builder = SparkSession.builder.master(master).appName("edgeanalytics")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Whether *master* is this very process."""
    return master.startswith("local")


def package_folders() -> list[str]:
    """Where Spark's Python workers find the code of the driver, installed or not."""
    here = Path(__file__).resolve().parent.parent
    broker = Path(edgebroker.__file__ or ".").resolve().parent.parent
    return [str(folder) for folder in dict.fromkeys((here, broker))]


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Let this process, and what it starts meanwhile, write its stderr to *path*."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def last_words(path: Path) -> str:
    """The end of what Spark printed."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return "\n".join(lines[-LAST_WORDS_LINES:])
