"""The text of a Spark error tells a missing file, a damaged one and a lost connection apart."""

from __future__ import annotations

import pytest

from mesh.analysis.reading import spark_errors
from mesh.analysis.reading.spark_errors import damage_in, is_gone, may_be_damage

HEAD = (
    "An error occurred while calling o151.save.\n"
    ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
    "file:///logs/a.  SQLSTATE: KD001\n"
    "\tat org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:1)\n"
)


def caused_by(*causes: str) -> str:
    return HEAD + "".join(f"Caused by: {cause}\n\tat a.b(C.java)\n" for cause in causes)


@pytest.mark.parametrize(
    ("cause", "lines", "parquet"),
    [
        ("java.io.EOFException: Unexpected end of input stream", "ENDS_EARLY", "BROKEN_PARQUET"),
        ("java.io.EOFException", "ENDS_EARLY", "BROKEN_PARQUET"),
        ("java.io.IOException: not a gzip file", "NOT_GZIP", "BROKEN_PARQUET"),
        ("java.io.IOException: gzip stream CRC failure", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.util.zip.DataFormatException: bad", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.io.IOException: invalid block type", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.io.IOException: too many length or distance symbols", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.lang.ArrayIndexOutOfBoundsException: Index 5", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.lang.IllegalArgumentException", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("org.apache.hadoop.fs.ChecksumException: Checksum error: a", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.lang.RuntimeException: a is not a Parquet file (length is too low: 4)", None, "NOT_PARQUET"),
        ("java.lang.RuntimeException: a is not a Parquet file. Expected magic number", None, "NOT_PARQUET"),
        ("com.github.luben.zstd.ZstdIOException: Corrupted block", None, "BROKEN_PARQUET"),
        ("java.io.IOException: FAILED_TO_UNCOMPRESS(5)", None, "BROKEN_PARQUET"),
        ("java.io.IOException: Expected 9 values in column chunk at a", None, "BROKEN_PARQUET"),
        ("java.io.EOFException: Cannot seek to a negative offset", "ENDS_EARLY", "BROKEN_PARQUET"),
        ("org.apache.parquet.io.ParquetDecodingException: page", None, "BROKEN_PARQUET"),
        ("shaded.parquet.org.apache.thrift.protocol.TProtocolException: no", None, "BROKEN_PARQUET"),
        (
            "java.io.IOException: can not read class org.apache.parquet.format.PageHeader",
            None,
            "BROKEN_PARQUET",
        ),
        ("a.b.SchemaColumnConvertNotSupportedException: column: [v]", None, "OTHER_TYPE"),
    ],
)
def test_the_last_cause_tells_the_damage(cause: str, lines: str | None, parquet: str | None) -> None:
    text = caused_by("java.io.IOException: could not read", cause)
    found = [damage_in(text, parquet=each) for each in (False, True)]
    assert found == [name and getattr(spark_errors, name) for name in (lines, parquet)]
    assert may_be_damage(text)
    assert not is_gone(text)


@pytest.mark.parametrize("path", ["s3a://b/logs/a.parquet", "/not a gzip file/a invalid .jsonl.gz"])
@pytest.mark.parametrize(
    "cause",
    [
        "java.net.SocketException: Connection reset",
        "java.net.SocketTimeoutException: Read timed out on {}",
        "java.io.IOException: {}: Connection reset",
        "java.io.IOException: Input/output error",
        'java.io.IOException: Failed on local exception: java.io.IOException; Host Details : "{}"',
        "java.io.FileNotFoundException: {} (Permission denied)",
        "java.io.FileNotFoundException: {} (Too many open files)",
        "java.nio.file.AccessDeniedException: {}: open: 403",
        'org.apache.hadoop.security.AccessControlException: Permission denied: user=x, inode="{}"',
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1 file={} No live nodes",
        'java.io.EOFException: End of File Exception between local host is: "a"; destination host is: "{}"',
        "java.io.EOFException: Unexpected EOF while trying to read response from server",
        "java.io.EOFException: Premature EOF: no length prefix available",
        "java.lang.InterruptedException",
        "java.lang.IllegalStateException: SparkContext was shut down",
        "java.lang.SecurityException: {}",
        "java.lang.RuntimeException: {}: no credentials",
        "java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_a_file_system_that_fails_is_no_damage(cause: str, path: str) -> None:
    """The name of a Parquet file made damage of each failure: its other rows were lost without an error."""
    text = caused_by("java.io.IOException: could not read", cause.format(path))
    assert not may_be_damage(text)
    assert not is_gone(text)


def test_a_connection_that_ends_is_no_damage() -> None:
    """Hadoop reports the end of a connection with an end of a stream as the last cause."""
    ended = 'java.io.EOFException: End of File Exception between local host is: "a"; destination host is: "b"'
    assert not may_be_damage(caused_by(ended, "java.io.EOFException"))


def test_an_error_without_a_cause_is_its_own() -> None:
    head = "An error occurred while calling o1.save.\n: "
    assert damage_in(f"{head}java.lang.NullPointerException\n\tat a", parquet=True)
    assert not may_be_damage(f"{head}org.apache.spark.SparkException: Job aborted: a.parquet\n\tat a")
    assert not may_be_damage("Job aborted due to stage failure: ExecutorLostFailure a.parquet")


@pytest.mark.parametrize(
    "text",
    [
        "[PATH_NOT_FOUND] Path does not exist: file:/logs/a. SQLSTATE: 42K03",
        f"{HEAD}Caused by: java.io.FileNotFoundException: File file:/logs/a.jsonl.part does not exist",
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///logs/a",
    ],
)
def test_a_missing_file_is_gone_and_not_damaged(text: str) -> None:
    assert is_gone(text)
    assert not may_be_damage(text)
