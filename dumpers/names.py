"""Op names on disk: how a name is flattened, shortened and told from its neighbours.

Rules of the device and of the reference dump: ``/`` (and on the device ``.``) become ``_``. That loses information, so
every writer of ours keeps an index with the full names beside the files.
"""

from __future__ import annotations

import hashlib

MAX_FILE_NAME_BYTES = 255
"""What common file systems take for one path component, in bytes (not characters)."""


def flatten(name: str) -> str:
    """Returns the form that device dump files use: slashes, dots, backslashes and blanks become ``_``."""
    # Four replacements take a quarter of the time of one translate().
    return name.replace("/", "_").replace(".", "_").replace("\\", "_").replace(" ", "_")


def flatten_tf(name: str) -> str:
    """Returns the form of reference dump files: ``/`` becomes ``_``, dots stay (``tf_dump`` has always kept them)."""
    return name.replace("/", "_")


def shorten(name: str, room: int) -> str:
    """Returns ``name`` cut to at most ``room`` UTF-8 bytes, a digest at its end when something had to go.

    The digest makes two long names that agree in their first part different; the index has the full name.
    """
    raw = name.encode("utf-8")
    if len(raw) <= room:
        return name
    digest = hashlib.sha1(raw).hexdigest()[:16]
    head = raw[: room - len(digest) - 1].decode("utf-8", "ignore")
    return "{}-{}".format(head, digest)
