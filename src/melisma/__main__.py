"""`python -m melisma` is `melisma`."""

import os
import sys

# `python -m` looks for modules where the user stands first: `json.py` would run there.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from melisma.cli import main

main()
