"""`python -m breakwater`: the command where no script of that name is on the PATH."""

import sys

from breakwater.cli import main

if __name__ == "__main__":
    sys.exit(main())
