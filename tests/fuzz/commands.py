"""The command line many times in one process: reads lists of arguments as JSON lines, answers what became of each."""

import io
import json
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

from marian_jobs.cli import main


def run(arguments: list[str]) -> dict[str, object]:
    """Exit code and output of `marian` with these arguments; an error that left it is in `escaped`."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace") for _ in range(2))
    escaped, code = "", 0
    sys.argv = ["marian", *arguments]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        except BaseException:
            escaped = traceback.format_exc()
    for stream in (out, err):
        stream.flush()
    said, complained = (bytes(stream.buffer.getbuffer()).decode() for stream in (out, err))
    return {"code": code, "out": said, "err": complained, "escaped": escaped}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
