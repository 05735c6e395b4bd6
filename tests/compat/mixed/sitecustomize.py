"""Lets a process of the base start brokers of the present code with ``sys.executable``."""

import os
import sys

sys.executable = os.environ["MIXED_PYTHON"]
