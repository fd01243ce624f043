"""What the local stack's programs are told of our environment: all but its secrets.

The servers run for as long as the stack does, Postgres perhaps under another account; a project's keys, which may well
stand in the environment of whoever starts them, are none of their business.
"""

import os
import re
from typing import Final

_SECRET: Final = re.compile(r"^(MARIAN|SUPABASE)_|KEY|SECRET|TOKEN|PASS|CREDENTIAL|_DSN$|DATABASE_URL", re.IGNORECASE)


def surroundings(**more: str) -> dict[str, str]:
    """The environment for a program that we start: ours without what is named as a secret is, and `more`."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)} | more
