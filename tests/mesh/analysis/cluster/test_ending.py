"""Ctrl-C at any point leaves nothing: no Java, no worker, no folder, no traceback."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mesh.analysis.cluster.ending import Interrupts, processes_of_session, silently

SLOW_JOB = """
import sys
from mesh.analysis.cluster.session import spark_session
from mesh.analysis.cluster.settings import SparkOptions
from concurrent.futures import ThreadPoolExecutor

def slow(number):
    import time
    time.sleep(0.05)
    return number

def job(spark):
    from pyspark.sql import functions as F
    slowly = spark.range(100_000).select(F.udf(slow, "long", useArrow=False)("id"))
    slowly.write.format("noop").mode("overwrite").save()

print("begun", flush=True)
try:
    with spark_session(SparkOptions(memory="1g", small=True)) as spark:
        from pyspark.sql import functions as F
        spark.range(2).select(F.udf(slow, "long", useArrow=False)("id")).collect()
        print("up", flush=True)
        with ThreadPoolExecutor(2) as pool:
            pool.submit(job, spark)
            job(spark)
except KeyboardInterrupt:
    raise SystemExit(130)
"""


RELEASES = """
import os, signal, sys
from pyspark import SparkContext
from mesh.analysis.cluster.gateway import DriverJava
from mesh.analysis.cluster.session import spark_session
from mesh.analysis.cluster.settings import SparkOptions

class EndsJava:
    def __init__(self, stream, pid):
        self.stream, self.pid = stream, pid

    def readline(self):
        os.killpg(self.pid, signal.SIGKILL)
        return self.stream.readline()

    def close(self):
        self.stream.close()

def end(java):
    pid, client = java._process.pid, SparkContext._gateway._gateway_client
    os.killpg(pid, signal.SIGSTOP)
    connection = client.get_thread_connection()
    connection.stream = EndsJava(connection.stream, pid)
    client.garbage_collect_object("o1", False)  # as py4j's thread does for each dropped object
    ended(java)
    client.send_command = print
    client.garbage_collect_object("o2", False)

ended, DriverJava.end = DriverJava.end, end
try:
    with spark_session(SparkOptions(memory="1g", small=True)) as spark:
        raise LookupError("there is no folder")
except LookupError as error:
    print(error)
"""


def interrupt_me() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)  # the handler runs between two steps of the interpreter


def test_the_first_signal_ends_the_work_and_started_processes() -> None:
    ended = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        interrupts.end_now = lambda: ended.append("java")
        interrupt_me()
        pytest.fail("the work went on")
    assert ended == ["java"]
    assert signal.getsignal(signal.SIGINT) is before


def test_signals_while_it_is_cleaned_up_change_nothing_but_the_end() -> None:
    cleaned = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        try:
            interrupt_me()
        finally:
            interrupts.closing = True
            interrupt_me()
            cleaned.append("folder")
    assert cleaned == ["folder"]


def test_an_error_that_follows_a_signal_is_reported_as_the_signal() -> None:
    """py4j raises its own error about a Java that has ended; it was printed with a traceback."""
    with pytest.raises(KeyboardInterrupt), Interrupts():
        try:
            interrupt_me()
        except KeyboardInterrupt:
            raise OSError("Answer from Java side is empty") from None


def test_a_held_signal_waits_until_the_new_thing_has_its_name() -> None:
    made = None
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        with interrupts.held():
            interrupt_me()
            made = "a folder"
        pytest.fail("the work went on")
    assert made == "a folder"


def test_a_library_cannot_replace_the_handler_while_it_starts() -> None:
    """Ctrl-C just after Spark had installed its handler printed a traceback of py4j."""
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        ours = signal.getsignal(signal.SIGINT)
        with interrupts.kept():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) == ours
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN, "others are not kept"
        signal.signal(signal.SIGALRM, before)
        signal.raise_signal(signal.SIGINT)


def test_sigterm_ends_with_its_own_code() -> None:
    with pytest.raises(SystemExit) as raised, Interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)
    assert raised.value.code == 143


def test_signal_handlers_are_unchanged_in_another_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_the_processes_of_a_session_are_found() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        try:
            if not Path("/proc/self").exists():
                pytest.skip("this system has no /proc")
            assert processes_of_session(process.pid) == [process.pid]
        finally:
            process.kill()


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", ["starting", "starting Java", "up", "working", "twice"])
def test_ctrl_c_leaves_nothing_behind(stage: str, tmp_path: Path) -> None:
    """A Java remained in 7 of 8 tries, with tracebacks of py4j, since Spark's handler needs what it broke.
    Once a Python worker had finished a task, Spark's server of counters printed another traceback."""
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    rng = random.Random(stage)
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", SLOW_JOB]
    with subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        if stage == "starting Java":
            wait_until(lambda: bool(javas(tmp_path)))
        elif stage != "starting":
            assert process.stdout.readline() == "up\n"
        if stage in ("working", "twice"):
            wait_until(lambda: any("pyspark" in line and "daemon" in line for line in javas(tmp_path)))
        time.sleep(rng.random() * 0.5)
        for _ in range(2 if stage == "twice" else 1):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(rng.random() * 0.2)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 130, said
    assert "Traceback" not in said and "Exception" not in said, said
    assert javas(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(900)
def test_objects_released_at_the_end_of_java_print_nothing(tmp_path: Path) -> None:
    """A thread of py4j releases them up to a second later. In 3 of 8 runs that ended early, the Java ended
    meanwhile, and the thread printed a traceback above the sentence."""
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    done = subprocess.run(
        [sys.executable, "-c", RELEASES],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "there is no folder\n", "")


def wait_until(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def javas(scratch: Path) -> list[str]:
    """Command lines of the processes that use this folder: the launcher, Java, Python workers."""
    mark = f"TMPDIR={scratch}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environ = (entry / "environ").read_bytes().split(b"\0")
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended, or belongs to another user
            continue
        if mark in environ and SLOW_JOB not in line:
            found.append(line)
    return found


def test_loggers_that_are_silenced_can_still_be_used_by_spark() -> None:
    """They were made as plain loggers, and each error of a query became a TypeError in its own logging."""
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    from pyspark.logger import PySparkLogger

    with silently():
        pass
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        assert isinstance(logging.getLogger(name), PySparkLogger)


def test_only_the_root_records_of_py4j_are_silenced(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    theirs = logging.LogRecord("root", logging.ERROR, "/lib/py4j/java_gateway.py", 1, "lost", None, None)
    with silently():
        logging.getLogger().handle(theirs)
        logging.error("ours")
    logging.getLogger().handle(theirs)
    assert caplog.messages == ["ours", "lost"]
