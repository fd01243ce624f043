"""`python -m marian_jobs` is `marian`."""

from marian_jobs.cli import main

main()
