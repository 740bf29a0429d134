"""How many files and connections this process may have open, and how many of them connections may use.

The others are for the store, for files of artifacts and for connections that the platform opens itself.
"""

import contextlib
import resource

import structlog

log = structlog.get_logger()

_ENOUGH = 4096
_RESERVE_MIN, _RESERVE_SHARE = 32, 4


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard limit. Log the result, as a warning if it is low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a system may refuse its own hard limit; the soft one stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = _limit()
    write = log.warning if limit < _ENOUGH else log.info
    write("server.open_files_limit", limit=limit, for_connections=for_connections(), recommended=_ENOUGH)


def for_connections() -> int:
    """Return the bound below which the descriptors of connections must be: a quarter of the limit is reserved."""
    limit = _limit()
    return limit - max(_RESERVE_MIN, limit // _RESERVE_SHARE)


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
