"""Measure the memory and CPU time of this process from /proc, without psutil.

Memory is counted without the pages of programs and libraries. They are clean, shared by all
processes that run the same file, and the kernel drops them where memory is short; how many are
resident depends on what the page cache happened to hold (an agent with ONNX Runtime has 23 to 36
MB). Weights that are mapped from a file count, because every frame reads them.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from nodes.core.events import Usage
from nodes.host.kernel_files import table_of


def usage() -> Usage:
    """Return resident, peak and anonymous memory in bytes, and the CPU seconds of all threads.

    The peak is the kernel's, since the process's start or since `PeakMemory` has reset it, less the
    program pages of now. It may be too low by the program pages that were loaded after the peak.
    """
    return _usage(_status())


def _status() -> dict[str, int]:
    """Return the memory of this process as the kernel counts it, in bytes."""
    table = table_of(Path("/proc/self/status"))
    return {
        name: 1024 * table.get(f"{name}:", 0) for name in ("VmRSS", "VmHWM", "RssAnon", "RssFile")
    }


def _usage(fields: dict[str, int]) -> Usage:
    not_counted_bytes = _PROGRAMS.resident_bytes(fields["RssFile"])
    resident_bytes = max(fields["VmRSS"] - not_counted_bytes, fields["RssAnon"])
    peak_bytes = max(fields["VmHWM"] - not_counted_bytes, resident_bytes)
    return Usage(resident_bytes, peak_bytes, fields["RssAnon"], time.process_time())


class PeakMemory:
    """The largest resident memory since the present deployment began to load, in `usage`.

    The kernel's own peak is that of the process's life. Writing 5 to `clear_refs` (proc(5)) resets
    it to what is resident now. The file is opened at once, because a restricted agent cannot open
    it. If the kernel does not allow that, `refusal` says why, and the peak is the kernel's only
    where that has grown since; else it is the most that was seen at one of the calls of `usage`.

    While a deployment is loaded ahead of the present one's end, both are in memory, and what is
    measured then counts for both.
    """

    def __init__(self, file: str = "/proc/self/clear_refs") -> None:
        self.refusal = ""
        self.life_bytes = 0
        """The peak of the process's life, as far as `usage` was called."""
        self._present_bytes = self._ahead_bytes = 0
        self._before_bytes = 0
        try:
            self._file = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            self._file, self.refusal = -1, str(error.strerror)

    def usage(self) -> Usage:
        """Return what the process uses; the peak is that of the present deployment."""
        fields = _status()
        now = _usage(fields)
        has_grown = fields["VmHWM"] > self._before_bytes
        peak_bytes = now.rss_peak_bytes if has_grown else now.rss_bytes
        self.life_bytes = max(self.life_bytes, now.rss_peak_bytes)
        self._present_bytes = max(self._present_bytes, peak_bytes)
        self._ahead_bytes = max(self._ahead_bytes, peak_bytes)
        return replace(now, rss_peak_bytes=self._present_bytes)

    def begin(self, *, is_loaded: bool = False) -> None:
        """Begin with a new deployment; it may be the one that `is_loaded` ahead."""
        self._reset()
        self._present_bytes = self._ahead_bytes if is_loaded else 0

    def begin_ahead(self) -> None:
        """Begin to load a deployment while the present one runs."""
        self._reset()
        self._ahead_bytes = 0

    def _reset(self) -> None:
        self.usage()  # the peak until now
        if self._file >= 0:
            try:
                os.write(self._file, b"5")
            except OSError as error:
                self.refusal = str(error.strerror)
        self._before_bytes = _status()["VmHWM"]

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Programs:
    """The resident program pages of this process, which take milliseconds to count: they are
    counted again only if the resident pages of files have changed, as they do not while frames
    stream.
    """

    def __init__(self) -> None:
        self._file_bytes = -1
        self._bytes = 0

    def resident_bytes(self, file_bytes: int) -> int:
        """Return their bytes, while `file_bytes` of all files are resident."""
        if file_bytes != self._file_bytes:
            self._file_bytes, self._bytes = file_bytes, program_bytes()
        return self._bytes


_PROGRAMS = _Programs()


def program_bytes(process: int | str = "self") -> int:
    """Return the bytes of a process's program and libraries that are resident and unchanged."""
    interpreter = os.readlink(f"/proc/{process}/exe")
    kilobytes, is_program = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text("utf-8", "replace").splitlines():
        name, *rest = line.split(maxsplit=5)
        if not name.endswith(":"):  # a mapping's first line: addresses, …, and its file, if any
            path = rest[-1] if len(rest) == 5 else ""
            is_program = ".so" in Path(path).name or path == interpreter
        elif is_program and name in ("Rss:", "Anonymous:"):
            kilobytes += int(rest[0]) * (1 if name == "Rss:" else -1)
    return kilobytes * 1024


def resident_bytes() -> int:
    """Return the resident memory in bytes, program pages included; it costs a fifth of `usage`."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def opened_waits(thread: str = "thread-self") -> int | None:
    """Open the kernel's counts of a thread's times, and return the file's descriptor.

    `thread` is an entry in /proc. The result is None if the kernel does not count.
    """
    try:
        return os.open(f"/proc/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def waited_s(file: int | None) -> float | None:
    """Return the seconds since its start for which a thread waited for a CPU.

    This is the kernel's count in the `file` of `opened_waits`, which includes waits because of a
    quota. The result is None if the kernel does not count, or the thread has ended.
    """
    try:
        return None if file is None else int(os.pread(file, 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def machine() -> str:
    """Return a description of this machine: its board or processor, and its instruction set."""
    architecture = os.uname().machine
    for path, wanted in (("/proc/device-tree/model", ""), ("/proc/cpuinfo", "model name")):
        try:
            text = Path(path).read_text("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(wanted):
                model = line.removeprefix(wanted).strip("\t :\0")
                return f"{model[:200]} ({architecture})"
    return architecture
