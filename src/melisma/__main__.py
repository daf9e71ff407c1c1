"""`python -m melisma` is `melisma`."""

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it without a traceback."""
    try:
        from melisma.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    # `python -m` looks for modules where the user stands first: `json.py` would run.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]
    main()
