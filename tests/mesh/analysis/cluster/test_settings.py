"""The settings of a session, depending on the master and on the user's options."""

from __future__ import annotations

import pytest

from mesh.analysis.cluster.settings import SparkOptions, launch_settings, parse_conf, sql_settings

ONE_MACHINE = (
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.memory",
    "spark.default.parallelism",
)


def test_the_driver_on_one_machine_stays_on_loopback_with_its_memory_and_partitions() -> None:
    settings = launch_settings(SparkOptions(master="local[3]"), None)
    assert [settings[key] for key in ONE_MACHINE] == ["127.0.0.1", "127.0.0.1", "2g", "6"]
    assert sql_settings(SparkOptions(master="local[3]"))["spark.sql.shuffle.partitions"] == "6"


def test_a_cluster_gets_none_of_the_settings_for_one_machine() -> None:
    """The driver was bound to loopback for every master: a worker on another host waited forever."""
    options = SparkOptions(master="spark://10.0.0.1:7077")
    assert not set(ONE_MACHINE) & set(launch_settings(options, None))
    assert not {"spark.sql.shuffle.partitions", "spark.sql.files.maxPartitionBytes"} & set(
        sql_settings(options)
    )
    assert launch_settings(options, "10.0.0.9")["spark.driver.host"] == "10.0.0.9"


def test_requested_memory_is_set_everywhere() -> None:
    options = SparkOptions(master="spark://10.0.0.1:7077", memory="7g")
    assert launch_settings(options, None)["spark.driver.memory"] == "7g"


@pytest.mark.parametrize("small", [False, True])
def test_settings_of_the_user_override_all_others(small: bool) -> None:
    ours = {**launch_settings(SparkOptions(small=small), None), **sql_settings(SparkOptions(small=small))}
    users = {key: "7g" for key in ours if key != "spark.master"}
    options = SparkOptions(memory="3g", conf=users, small=small)
    assert users.items() <= launch_settings(options, "10.0.0.9").items()
    assert sql_settings(options) == {}


def test_a_master_among_the_users_settings_is_the_master() -> None:
    options = SparkOptions(conf={"spark.master": "spark://there:7077"})
    assert not options.local
    assert launch_settings(options, None)["spark.master"] == "spark://there:7077"


def test_settings_are_pairs_and_the_last_one_holds() -> None:
    assert parse_conf(("spark.a=1=2", "spark.b=", "spark.a=3")) == {"spark.a": "3", "spark.b": ""}


@pytest.mark.parametrize("wrong", ["spark.a", "executor.memory=1g", "=1", ""])
def test_a_malformed_setting_is_refused_and_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not spark.SOMETHING=VALUE"):
        parse_conf((wrong,))


@pytest.mark.parametrize("wrong", ["bogus", "spark://", "", "mesos://there:5050"])
def test_a_master_of_no_kind_is_refused_before_spark_is_started(wrong: str) -> None:
    with pytest.raises(ValueError, match="is none that Spark knows; use local"):
        SparkOptions(master=wrong)


@pytest.mark.parametrize("wrong", ["lots", "0g", "-1g", "2gb", "1.5g", "g", ""])
def test_a_memory_that_is_no_size_is_refused_before_spark_is_started(wrong: str) -> None:
    """Java did not start, and the error named the master."""
    for options in ({"memory": wrong}, {"conf": {"spark.driver.memory": wrong}}):
        with pytest.raises(ValueError, match=f"--memory {wrong} is no size; use a number and a unit"):
            SparkOptions(**options)  # type: ignore[arg-type]
    assert SparkOptions(memory="512m").memory == "512m"


@pytest.mark.parametrize("wrong", ["1", "2048", "1k", "511m", "524287k", "536870911"])
def test_less_memory_than_spark_takes_is_refused_with_the_least(wrong: str) -> None:
    """Java or Spark refused it, with a text that did not name the flag."""
    for options in ({"memory": wrong}, {"conf": {"spark.driver.memory": wrong}}):
        with pytest.raises(ValueError, match=f"--memory {wrong} is too little for Spark; use 512m or more"):
            SparkOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("right", ["512m", "512M", "524288k", "536870912", "1g", "1T"])
def test_the_least_memory_is_accepted_in_all_units(right: str) -> None:
    assert SparkOptions(memory=right).memory == right


@pytest.mark.parametrize("wrong", ["local[0]", "local[]", "local[-1]", "local[two]", "local[2", "locale"])
def test_a_local_master_without_cores_is_refused_before_spark_is_started(wrong: str) -> None:
    for options in ({"master": wrong}, {"conf": {"spark.master": wrong}}):
        with pytest.raises(ValueError, match="names no cores of this machine; use local"):
            SparkOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "right", ["local", "local[1]", "local[*]", "local[4,2]", "local[* , 2]", "local-cluster[2,1,1024]"]
)
def test_local_masters_of_spark_are_accepted(right: str) -> None:
    assert SparkOptions(master=right).local
