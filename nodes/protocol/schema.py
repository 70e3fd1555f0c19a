"""The schema of the protocol: which values each field of each message may hold, in each version."""

from __future__ import annotations

from typing import TypeAlias

from nodes.protocol import messages as words
from nodes.protocol.encodings import ENCODINGS
from nodes.protocol.fields import (
    MAX_COUNT,
    MAX_NAME,
    MAX_TEXT,
    MAX_WORD,
    Convert,
    Record,
    chunk,
    digest,
    dtype,
    flag,
    integer,
    list_of,
    nested,
    one_of,
    optional,
    real,
    records,
    sentence,
    shape,
    string,
    word,
)

_Field: TypeAlias = Convert | tuple[Convert, Convert]

_count = integer(0, MAX_COUNT)
_index = integer(0, (1 << 31) - 1)
_positive = integer(1, (1 << 31) - 1)
_seconds = real(0.0, 1e12)
_joules = real(0.0, 1e15)
_part_s = real(0.0, 1e3)
_rate_s = real(1e-18, 1e3)
_number = real(-1e300, 1e300)
_lease = real(1e-3, 1e6)
_name = string(MAX_NAME)
_who = string(200)
_text = (string(MAX_TEXT // 4), sentence(MAX_TEXT // 4))
_label = (string(MAX_NAME), sentence(MAX_NAME))

MAX_THREADS = 1024
MAX_OPSET = 10_000

_encoding = one_of(*ENCODINGS)
_block = integer(1, 1024)

_BLOB = Record(words.BlobInfo, {"digest": digest, "size_bytes": _count})

_PHASE = Record(
    words.PhaseSpec,
    {
        "name": _name,
        "graph": nested(_BLOB),
        "weights": (optional(_BLOB.pack), optional(_BLOB.unpack)),
        "inputs": list_of(_name),
        "outputs": list_of(_name),
        "network": _index,
    },
)

_PEER = Record(words.PeerSpec, {"name": _name, "data_address": _name})

_word = (string(MAX_WORD), word(MAX_WORD))
_words = (list_of(_word[0]), list_of(_word[1]))

_OPTION_OFFER = Record(
    words.OptionOffer,
    {
        "name": _word,
        "words": _words,
        "least": optional(_number),
        "most": optional(_number),
        "is_whole": flag,
    },
)

_ENGINE_MEMORY = Record(
    words.EngineMemory,
    {"idle_bytes": _count, "subnet_bytes": _count, "layer_bytes": _count},
)

_ENGINE_OPTION = Record(words.EngineOption, {"name": _word, "value": _name})

_ENGINE_CHOICE = Record(
    words.EngineChoice,
    {"engine": _word, "device": _word, "precision": _word, "options": records(_ENGINE_OPTION)},
)

FIGURES = Record(
    words.BoardFigures,
    {
        "threads": integer(1, MAX_THREADS),
        "dense_s_per_mac": _rate_s,
        "pointwise_s_per_mac": _rate_s,
        "depthwise_s_per_mac": _rate_s,
        "integer_s_per_mac": _rate_s,
        "weight_s_per_byte": _rate_s,
        "tensor_s_per_byte": _rate_s,
        "cut_s_per_byte": _part_s,
        "run_s": _part_s,
        "message_s": _part_s,
        "byte_s": _part_s,
        "encode_s_per_byte": _part_s,
    },
)
"""The figures of a board; agents also keep them in this form."""


def _messages(version: int) -> tuple[Record, ...]:
    """Return every message as `version` of the protocol sends it."""

    def later(since: int, field: _Field) -> _Field | None:
        """A field that version `since` has added."""
        return field if version >= since else None

    channel = Record(
        words.ChannelSpec,
        {
            "number": _index,
            "tensor": _name,
            "dtype": dtype,
            "shape": shape,
            "source_node": _name,
            "source_phase": optional(_index),
            "target_node": _name,
            "target_phases": list_of(_index),
            "capacity_frames": _positive,
            "varies": flag,
            "kept_from": _name,
            "encoding": _encoding,
            "unsent_frames": _count,
            "block": _block,
        },
    )
    device = Record(
        words.DeviceOffer,
        {"device": _word, "precisions": _words, "block": _block},
    )
    offer = Record(
        words.EngineOffer,
        {
            "engine": _word,
            "missing": _text,
            "devices": records(device),
            "options": records(_OPTION_OFFER),
            "memory": nested(_ENGINE_MEMORY),
            "opset": later(10, integer(0, MAX_OPSET)),
        },
    )
    deployment = Record(
        words.Deployment,
        {
            "epoch": _count,
            "node": _name,
            "order": one_of("pipelined", "strict"),
            "phases": records(_PHASE),
            "channels": records(channel),
            "dial": records(_PEER),
            "threads": integer(1, MAX_THREADS),
            "check_finite": flag,
            "engine": nested(_ENGINE_CHOICE),
            "run": _label,
        },
    )
    stats = Record(
        words.Stats,
        {
            "epoch": _count,
            "firings": list_of(_count),
            "busy_s": list_of(_seconds),
            "elapsed_s": _seconds,
            "cpu_s": _seconds,
            "sent_bytes": _count,
            "received_bytes": _count,
            "rss_bytes": _count,
            "rss_peak_bytes": _count,
            "anonymous_bytes": _count,
            "stale_messages": _count,
            "bad_messages": _count,
            "fifo_peak_bytes": _count,
            "phase_cpu_s": list_of(_seconds),
            "energy_j": optional(_joules),
            "channel_frames": list_of(_count),
            "waited_s": list_of(_seconds),
            "phase_s": later(10, list_of(_seconds)),
        },
    )
    figures = (
        Record(words.GetFigures, {"threads": integer(0, MAX_THREADS)}),
        Record(
            words.Figures,
            {"figures": (optional(FIGURES.pack), optional(FIGURES.unpack)), "reason": _text},
        ),
    )
    return (
        Record(
            words.Hello,
            {
                "protocol": _count,
                "session": _name,
                "lease_s": _lease,
                "owner": _who,
                "process": _who,
                "succeeds": _who,
            },
        ),
        Record(words.Query, {"digests": list_of(digest)}),
        Record(words.Put, {"blob": nested(_BLOB), "offset_bytes": _count, "data": chunk}),
        Record(words.Deploy, {"deployment": nested(deployment)}),
        Record(words.Prepare, {"deployment": nested(deployment), "loads": flag}),
        Record(words.Prepared, {"epoch": _count, "reason": _text}),
        Record(words.Start, {"epoch": _count}),
        Record(words.Stop, {"epoch": _count}),
        Record(words.GetStats, {}),
        Record(words.GetTrace, {"number": _count, "frames": list_of(_count)}),
        *(figures if version >= 10 else ()),
        Record(words.Ping, {}),
        Record(words.Bye, {}),
        Record(words.Shutdown, {}),
        Record(
            words.Welcome,
            {
                "protocol": _count,
                "name": _name,
                "version": _label,
                "data_address": _label,
                "engine": _label,
                "machine": _label,
                "cores": _index,
                "rss_bytes": _count,
                "encodings": list_of(_encoding),
                "available_bytes": optional(_count),
                "engines": records(offer),
                "meter": _label,
                "unmetered": _label,
                "threads": later(10, integer(0, MAX_THREADS)),
                "spare_cores": later(10, real(0.0, MAX_THREADS)),
            },
        ),
        Record(words.Refused, {"reason": _text, "protocol": _count, "holder": _who}),
        Record(words.Missing, {"digests": list_of(digest)}),
        Record(words.Stored, {"digest": digest, "offset_bytes": _count, "complete": flag}),
        Record(words.Progress, {"epoch": _count, "done": _count, "total": _count, "what": _text}),
        Record(
            words.Deployed,
            {
                "epoch": _count,
                "phase_s": list_of(_seconds),
                "rss_bytes": _count,
                "message_s": _seconds,
                "byte_s": _seconds,
            },
        ),
        Record(words.Failed, {"epoch": _count, "reason": _text, "peer": _name, "is_barred": flag}),
        Record(words.Stopped, {"epoch": _count, "stats": nested(stats)}),
        stats,
        Record(
            words.Traced,
            {"number": _count, "now_s": _seconds, "events": chunk, "dropped": _count},
        ),
        Record(words.Pong, {}),
        Record(words.Attach, {"epoch": _count, "node": _name}),
        Record(words.Credit, {"epoch": _count, "channel": _index, "frames": _positive}),
        Record(
            words.TensorHeader,
            {"epoch": _count, "channel": _index, "frame": _count, "dtype": dtype, "shape": shape},
        ),
    )


CHANGED: frozenset[type] = frozenset(
    {words.Figures, words.GetFigures, words.Stats, words.Stopped, words.Welcome}
)
"""The messages that `words.PROTOCOL` has added or changed, also by a record within them."""

VERSIONS = range(words.OLDEST_PROTOCOL, words.PROTOCOL + 1)
"""The versions of the protocol that are understood."""

WORDS = _messages(words.PROTOCOL)
BY_KIND = {version: {record.kind: record for record in _messages(version)} for version in VERSIONS}
BY_CLASS = {
    version: {record.cls: record for record in by_kind.values()}
    for version, by_kind in BY_KIND.items()
}


def has_message(version: int, kind: type) -> bool:
    """Return whether a version of the protocol has this kind of message."""
    return kind in BY_CLASS.get(version, ())
