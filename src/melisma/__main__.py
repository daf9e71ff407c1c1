"""`python -m melisma` is `melisma`."""

from melisma.cli import main

main()
