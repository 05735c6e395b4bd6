"""A URL whose file system Spark cannot reach gets one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.analysis.cluster.file_systems import unreachable
from mesh.cli.app import main

NO_CLASS = "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class {} not found\n\tat org.apache"
NO_SCHEME = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "{}"'


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            NO_CLASS.format("org.apache.hadoop.fs.s3a.S3AFileSystem"),
            "Spark has no file system for s3a: URLs; add its jars with "
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0",
        ),
        (
            NO_CLASS.format("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem"),
            "Spark has no file system for abfss: URLs; add its jars with "
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-azure:3.5.0",
        ),
        (
            NO_SCHEME.format("s3"),
            "Spark has no file system for s3: URLs; write s3a:, with "
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0",
        ),
        (
            NO_SCHEME.format("foo"),
            "Spark has no file system for foo: URLs; correct the URL, or add its jars with "
            "--conf spark.jars.packages=GROUP:NAME:VERSION",
        ),
        (
            "java.lang.IllegalArgumentException: java.net.UnknownHostException: names",
            "no host has the name names; correct the URL of the logs or of --out",
        ),
        (
            "java.net.ConnectException: Call From here/127.0.0.1 to names:8020 failed on connection "
            "exception: "
            "java.net.ConnectException: Connection refused; For more details see:  http://wiki",
            "nothing answers at names:8020; start it, or correct the URL of the logs or of --out",
        ),
        (NO_CLASS.format("org.example.Codec"), None),
        ("java.lang.OutOfMemoryError: Java heap space", None),
    ],
)
def test_each_cause_has_its_sentence(said: str, sentence: str | None) -> None:
    """The user got Spark's text and exit code 1."""
    assert unreachable(said, "3.5.0") == sentence


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("follow", [[], ["--follow", "--timeout", "1"]])
def test_a_url_without_a_file_system_ends_with_unavailable(
    spark: object, follow: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With --follow it was called a fault of the program."""
    (tmp_path / "a.jsonl").write_text("{}\n")
    assert main(["analyze", str(tmp_path), "--out", "s3a://bucket/out", *follow]) == 69
    said = capfd.readouterr().err
    assert said.startswith("mesh analyze: Spark has no file system for s3a: URLs; add its jars with --conf ")
    assert "GROUP" not in said and "VERSION" not in said and said.count("\n") == 1
