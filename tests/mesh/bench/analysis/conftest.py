"""The Spark session of the analysis' tests."""

from tests.mesh.analysis.conftest import spark as spark
