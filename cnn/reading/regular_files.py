"""Opening files that somebody else may have laid there.

Opening a pipe waits for its writer, a device may act on being opened, and reading one may never
end. So only regular files are opened here.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, *, may_be_link: bool = True) -> BinaryIO:
    """A regular file, open for reading; raises `OSError` with `strerror` for whatever else it is.

    Unless it `may_be_link`, the last part of `path` is none.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if may_be_link else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
