"""``python -m libsumtree``: the command line."""

import signal
import sys

# Ctrl-C while the modules are loaded ends the process, without a traceback of each rank.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from libsumtree.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
