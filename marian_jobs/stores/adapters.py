"""How payloads are read: straight from the binary form, without the driver's look for a byte-order mark.

Integers keep every digit, whatever their size; that is why no faster JSON library does this.
"""

from json import JSONDecoder, scanner
from typing import Any, Final

from psycopg import adapters, pq
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader

_scan: Final = scanner.make_scanner(JSONDecoder())  # type: ignore[arg-type]  # typeshed has no decoder there
_EMPTY: Final = b"{}"


class _PayloadLoader(Loader):
    format = pq.Format.BINARY

    def load(self, data: Buffer) -> Any:
        """The value behind the format's version byte."""
        text = bytes(data)[1:]
        return {} if text == _EMPTY else _scan(text.decode(), 0)[0]


PLAIN_PAYLOADS: Final = AdaptersMap(adapters)
PLAIN_PAYLOADS.register_loader("jsonb", _PayloadLoader)
