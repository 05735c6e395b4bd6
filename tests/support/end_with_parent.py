"""``python end_with_parent.py PARENT SIGNAL COMMAND...`` becomes the command, which gets the signal when its
parent dies. It is run by its path and imports nothing of the tests, since it starts before each of their
children (`tests.support.children`).

Linux only (prctl(2), PR_SET_PDEATHSIG). Elsewhere it only becomes the command.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, number, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before the call
            sys.exit(1)
    os.execvp(command[0], command)
