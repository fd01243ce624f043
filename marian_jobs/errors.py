"""Everything this package raises, and the SQLSTATEs its SQL functions raise.

A lost lease or a refused move is an ordinary answer of a queue, not an error: see the stores.
"""

from typing import ClassVar


class MarianError(Exception):
    """The base of all errors of this package; `hint` says what to do about it."""

    hint: ClassVar[str] = ""


class InvalidTransition(MarianError):
    """A move that the state diagram does not have from where the job stands; nothing was changed."""


class KeyConflict(MarianError):
    """MJ409: the key's live job belongs to another owner. Nothing of it is revealed."""

    hint = "Prefix idempotency keys with the owner, e.g. f'{user_id}:order-1'."


class RetryRefused(MarianError):
    """MJ410: a dead job cannot be queued again because a live job owns its key; the text names that job."""

    hint = "Cancel or await the named job first."


class InvalidArgument(MarianError, ValueError):
    """MJ400: the database refused an argument: a value out of range, or text Postgres cannot store."""


class IsolationConflict(MarianError):
    """MJ425: the caller's snapshot is too old to see the job that owns the key."""

    hint = "Enqueue from a READ COMMITTED transaction, or start the transaction anew."


class StoreUnavailable(MarianError):
    """The database or the API could not be reached, or broke off; the call may or may not have had its effect."""


class StoreRefused(MarianError):
    """The database or the API answered, and refused: credentials, grants, or a schema that is not there."""


class LeaseLost(MarianError):
    """The job is not this attempt's any more (cancelled, reclaimed): roll back what was done for it."""


class NotSupported(MarianError):
    """This store cannot do what was asked, by its nature; the text says which can."""


class NotInstalled(MarianError, ImportError):
    """An optional part was asked for whose libraries are not there; the text says which extra to install."""


BY_SQLSTATE: dict[str, type[MarianError]] = {
    "MJ400": InvalidArgument,
    "MJ409": KeyConflict,
    "MJ410": RetryRefused,
    "MJ425": IsolationConflict,
}
