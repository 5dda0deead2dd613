"""A Spark session without output of its own, which listens on loopback only and removes its files at the end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import edgebroker
from edgebroker.errors import EdgebrokerError

from .java import Java, install_shim

DRIVER_MEMORY = "1g"  # 10 million records need about half of it; more spills to disk
SHUFFLE_PARTITIONS_LOCAL = 4  # Spark's 200 are for clusters: each costs 5 ms even when it is empty
LAST_WORDS_LINES = 12
MASTER_WITHIN_S = 5
WORKERS_WITHIN_S = 40
"""A Spark on another machine that does nothing for so long does not reach this one, or has no worker."""
PROGRESS_EVERY_S = 5.0


class SparkFailed(EdgebrokerError):
    """Spark did not start, or stopped with an error; the message contains the end of its output."""


@contextmanager
def spark_session(java: Java, master: str = "local[*]", *, is_large: bool = False) -> Iterator[SparkSession]:
    """Run Spark on *java*; its processes and files are removed at the end. Raises SparkFailed if it cannot be started.

    is_large: whether the work is long enough for the optimising compiler.

    The output of Spark and Java goes to a file, and its end is shown if they fail: `edgeanalytics` prints its own
    messages.
    """
    with orderly_end(), tempfile.TemporaryDirectory(prefix="edgeanalytics-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        home = install_shim(java, scratch / "java") if java.needs_shim else java.home
        os.environ["JAVA_HOME"] = str(home)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if is_local(master):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        elif not os.environ.get("SPARK_LOCAL_IP"):
            os.environ.pop("SPARK_LOCAL_IP", None)  # empty, it is an address that no worker reaches
        check_master(master)
        words = scratch / "spark.log"
        try:
            with stderr_to(words), own_interrupts(), safe_path():
                spark = start(scratch, master, is_large=is_large)
        except Exception as failure:
            raise SparkFailed(f"Spark did not start with {home}: {failure}\n{last_words(words)}") from failure
        try:
            if not is_local(master):
                check_workers(spark, master)
            yield spark
        except (Py4JNetworkError, ConnectionError) as failure:
            gone = "Java has gone in the midst of it: it was killed, perhaps for want of memory"
            raise SparkFailed(f"{gone}\n{last_words(words)}".rstrip()) from failure
        except (Py4JError, PySparkException) as failure:
            reason = str(failure).partition("\n")[0]
            raise SparkFailed(f"Spark failed: {reason}\n{last_words(words)}".rstrip()) from failure
        finally:
            with suppress(Py4JError, OSError):  # it has already ended
                spark.stop()


def start(scratch: Path, master: str, *, is_large: bool = False) -> SparkSession:
    """Return the session, with every setting that differs from Spark's defaults."""
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
        "spark.executorEnv.PYTHONSAFEPATH": "1",
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
            "spark.driver.extraJavaOptions": f"{java_options} {compiler_options(is_large=is_large)}",
            # Adaptive execution measures between stages in order to plan better: on one machine this costs more than it
            # gains.
            "spark.sql.adaptive.enabled": "false",
        }
    builder = SparkSession.builder.master(master).appName("edgeanalytics")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_master(master: str) -> None:
    """Connect to the machine that *master* names, if it does. Raises SparkFailed if none answers: Spark would try for
    more than a minute.
    """
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_WITHIN_S).close()
        except (OSError, ValueError) as reason:
            reasons.append(f"{place}: {reason}")
        else:
            return
    raise SparkFailed(f"no Spark answers at {'; '.join(reasons)}")


def check_workers(spark: SparkSession, master: str) -> None:
    """Run a job of one row on *master*. Raises SparkFailed if no worker takes it within `WORKERS_WITHIN_S`."""
    failures: list[Exception] = []
    is_done = threading.Event()

    def job() -> None:
        try:
            spark.range(1).count()
        except Exception as failure:  # of a job that was cancelled, too
            failures.append(failure)
        is_done.set()

    threading.Thread(target=job, daemon=True).start()
    if not is_done.wait(WORKERS_WITHIN_S):
        host = spark.conf.get("spark.driver.host", "this machine")
        raise SparkFailed(
            f"{master} gave no worker within {WORKERS_WITHIN_S} s: it has none that is free, or they do not reach"
            f" {host}; SPARK_LOCAL_IP says which address of this machine they are told"
        )
    if failures:
        raise SparkFailed(f"Spark on {master} cannot run a job: {str(failures[0]).partition(chr(10))[0]}")


@contextmanager
def job_progress(spark: SparkSession, progress: Callable[[str], None]) -> Iterator[None]:
    """Call *progress* every few seconds with how much of the running job is done."""
    ended = threading.Event()

    def watch() -> None:
        tracker, told = spark.sparkContext.statusTracker(), ""
        while not ended.wait(PROGRESS_EVERY_S):
            with suppress(Py4JError, OSError):  # Spark has ended
                for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()):
                    if stage is not None and stage.numCompletedTasks < stage.numTasks:
                        line = f"reading: {100 * stage.numCompletedTasks // stage.numTasks} % of the files' blocks"
                        if line != told:
                            progress(line)
                        told = line

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def compiler_options(*, is_large: bool) -> str:
    """Return the options of Java for a local run.

    Most reports take seconds: the optimising compiler and collector threads cost more than they gain. Measured on
    200,000 records and 2 cores: 17 s instead of 33 s. A large one needs the compiler: without it, 10 million records
    take 441 s of processor time instead of 231 s.
    """
    return "-XX:+UseSerialGC" if is_large else "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def is_local(master: str) -> bool:
    """Return whether *master* runs Spark in this process."""
    return master.startswith("local")


def package_folders() -> list[str]:
    """Return the folders in which Spark's Python workers find the driver's packages, installed or not."""
    here = Path(__file__).resolve().parent.parent
    broker = Path(edgebroker.__file__ or ".").resolve().parent.parent
    return [str(folder) for folder in dict.fromkeys((here, broker))]


@contextmanager
def orderly_end() -> Iterator[None]:
    """Turn SIGTERM, of a service manager or `timeout`, into an exit that cleans up.

    Spark's temporary files may be large.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


@contextmanager
def safe_path() -> Iterator[None]:
    """Start Java, and so Spark's workers, with PYTHONSAFEPATH.

    Otherwise they would import modules from the working folder first, which may contain, say, a json.py that is not
    Python's. The variable is removed again for other processes that this one starts.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the SIGINT handler of this process.

    Spark's own would call Java in the middle of another call and print pages of errors.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # otherwise py4j would print the call that was interrupted
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr of this process and its child processes to *path*."""
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
    """Return the end of Spark's output."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return "\n".join(lines[-LAST_WORDS_LINES:])
