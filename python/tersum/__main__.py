"""``python -m tersum`` is the command ``tersum``."""

import sys

from tersum.cli import main

if __name__ == "__main__":
    sys.exit(main())
