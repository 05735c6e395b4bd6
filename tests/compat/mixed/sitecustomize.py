"""What a process of the base starts with ``sys.executable`` may be a broker of the present code."""

import os
import sys

sys.executable = os.environ["MIXED_PYTHON"]
