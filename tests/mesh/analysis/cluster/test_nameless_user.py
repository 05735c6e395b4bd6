"""The analysis runs for a user id without a passwd entry, as in many containers."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process  # Java takes its options at its start, so the session is another one

NAMELESS = """
import os
import pwd
import tempfile
from mesh.analysis.cluster import session
from mesh.analysis.cluster.settings import SparkOptions

def no_entry(uid):
    raise KeyError(uid)

pwd.getpwuid = no_entry
with session.spark_session(SparkOptions(memory="1g", small=True)) as spark:
    java = spark.sparkContext._jvm.java.lang.System
    assert java.getProperty("user.home").startswith(tempfile.gettempdir())
    assert spark.sparkContext.sparkUser() == f"uid-{os.getuid()}"
    assert spark.range(10).count() == 10
print("done")
"""


def test_spark_starts_for_a_user_without_a_passwd_entry() -> None:
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    ran = subprocess.run([sys.executable, "-c", NAMELESS], capture_output=True, text=True, timeout=280)
    assert ran.stdout == "done\n", ran.stderr
