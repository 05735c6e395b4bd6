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


@pytest.mark.parametrize(
    ("cause", "lines", "parquet"),
    [
        ("java.io.EOFException: Unexpected end of input stream", "ENDS_EARLY", "BROKEN_PARQUET"),
        ("java.io.IOException: not a gzip file", "NOT_GZIP", None),
        ("java.io.IOException: gzip stream CRC failure", "BROKEN_GZIP", None),
        ("java.io.IOException: java.util.zip.DataFormatException: bad", "BROKEN_GZIP", "BROKEN_PARQUET"),
        ("java.io.IOException: invalid block type", "BROKEN_GZIP", None),
        ("java.lang.RuntimeException: a is not a Parquet file (length is 4)", "BROKEN_GZIP", "NOT_PARQUET"),
        ("com.github.luben.zstd.ZstdIOException: Corrupted block", None, "BROKEN_PARQUET"),
        ("org.apache.parquet.io.ParquetDecodingException: page", None, "BROKEN_PARQUET"),
        ("SchemaColumnConvertNotSupportedException: column: [v]", None, "OTHER_TYPE"),
        ("java.net.SocketException: Connection reset", None, None),
        ("java.net.SocketTimeoutException: Read timed out", None, None),
        ("java.io.IOException: Connection reset by peer", None, None),
        ("java.io.IOException: Input/output error", None, None),
        ("java.io.FileNotFoundException: /logs/a (Permission denied)", None, None),
    ],
)
def test_the_last_cause_tells_the_damage(cause: str, lines: str | None, parquet: str | None) -> None:
    text = (
        f"{HEAD}Caused by: java.io.IOException: could not read\n\tat a.b(C.java)\nCaused by: {cause}\n\tat d"
    )
    found = [damage_in(text, parquet=each) for each in (False, True)]
    assert found == [name and getattr(spark_errors, name) for name in (lines, parquet)]
    assert may_be_damage(text) is (found != [None, None])
    assert not is_gone(text)


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
