"""``python -m mesh`` runs the command ``mesh``."""

import sys

from mesh.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
