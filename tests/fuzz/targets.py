"""What is fed: every reader of bytes that nobody vouches for, and what each may answer.

A reader takes bytes, and returns whether they were taken for good; it raises only for what must
never happen. Where inputs come from is no matter to it: `mutated` makes one from a seed, and a
fuzzer that is guided by coverage (`tests.fuzz.guided`) changes those that led somewhere new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import cnn
from cnn.errors import CnnError
from launcher.config.load import validated
from launcher.config.source import read_source
from launcher.errors import BadInputError
from launcher.plan.files import PLAN, read_plan
from launcher.plan.profile.file import ProfileFile, read_profile
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.file import inspect
from nodes.net.keys import KeyFolder, KeysError
from nodes.protocol import codec
from nodes.protocol import messages as words
from nodes.protocol.errors import RemoteProtocolError
from tests.fuzz import certificates, good, input_files, served, tasks, video_files
from tests.fuzz.conversation import converse
from tests.fuzz.model_files import ModelReader, changed_model
from tests.fuzz.model_files import seeds as models
from tests.fuzz.mutation import mutated, mutated_map, mutated_text
from tests.fuzz.payloads import payloads, read_payload
from tests.fuzz.run_files import IndexReader, JournalReader

CONVERSATION_BYTES = 2500


@dataclass(frozen=True)
class Target:
    """A reader, good inputs for it, and how they are made bad. `share` is how many of all inputs
    are for it: readers of what comes over the network get the most."""

    read: Callable[[bytes], bool]
    seeds: tuple[bytes, ...]
    change: Callable[[Sequence[bytes], Random], bytes] = mutated
    share: int = 1

    def __call__(self, random: Random) -> bool:
        """Read an input that comes from this generator alone."""
        return self.read(self.change(self.seeds, random))


def read_message(data: bytes) -> bool:
    """The codec: bytes, as they come off the wire."""
    try:
        message = codec.decode(data)
    except RemoteProtocolError:
        return False
    assert isinstance(message, words.Message)
    return True


def _changed_message(seeds: Sequence[bytes], random: Random) -> bytes:
    return (mutated_map if random.random() < 0.5 else mutated)(seeds, random)


def _changed_text(seeds: Sequence[bytes], random: Random) -> bytes:
    texts = [seed.decode("utf-8", "replace") for seed in seeds]
    return mutated_text(texts, random).encode("utf-8", "surrogatepass")


def _changed_task(seeds: Sequence[bytes], random: Random) -> bytes:
    return (_changed_text if random.random() < 0.7 else mutated)(seeds, random)


def _any_bytes(_: Sequence[bytes], random: Random) -> bytes:
    return random.randbytes(CONVERSATION_BYTES)


class Files:
    """Targets that read a file, which they write into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "weights").write_bytes(good.WEIGHTS)

    def _written(self, name: str, content: bytes) -> Path:
        """A new file: one that is written over is flushed to the disk by some file systems."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return path

    def read_cluster(self, data: bytes) -> bool:
        """`cluster.yaml`."""
        try:
            validated(read_source(self._written("cluster.yaml", data)))
        except BadInputError:
            return False
        return True

    def read_subnet(self, data: bytes) -> bool:
        """ONNX as a node reads it."""
        path = self._written("network", data)
        try:
            file = inspect(path)
        except ExecutorError:
            return False
        assert all(found.parent == self._folder for found in file.external)
        return True

    def read_network(self, data: bytes) -> bool:
        """ONNX as `launch` reads it."""
        path = self._written("network.onnx", data)
        try:
            model = cnn.read(path)
        except CnnError:
            return False
        assert model.network.layers
        return True

    def read_plan(self, data: bytes) -> bool:
        """`plan.json`."""
        self._written(PLAN, data)
        try:
            read_plan(self._folder)
        except (BadInputError, CnnError):
            return False
        return True

    def read_profile(self, data: bytes) -> bool:
        """A profile file."""
        try:
            found = read_profile(self._written("profile.json", data))
        except BadInputError:
            return False
        assert ProfileFile.model_validate_json(found.model_dump_json()) == found
        return True

    def read_keys(self, data: bytes) -> bool:
        """A folder of keys: the secret, and a public key of half the length."""
        keys = self._folder / "keys"
        (keys / "nodes").mkdir(parents=True, exist_ok=True)
        self._written("keys/secret.key", data).chmod(0o600)
        self._written("keys/nodes/b.pub", data[len(data) // 2 :] if len(data) > 128 else data)
        try:
            ring = KeyFolder(keys)
        except KeysError:
            return False
        assert len(ring.secret) == len(ring.nodes["b"]) == 32
        return True

    def targets(self) -> Mapping[str, Target]:
        """All of them."""
        subnets = (good.subnet(), good.subnet(external=True))
        journal, index = JournalReader(self._folder), IndexReader(self._folder)
        image, array, archive = (
            Target(input_files.reader(self._folder, suffix), seeds, change, share=4)
            for suffix, seeds, change in (
                (".png", input_files.images(), input_files.changed_image),
                (".npy", input_files.arrays(), input_files.changed_array),
                (".npz", input_files.archives(), input_files.changed_archive),
            )
        )
        model = ModelReader(self._folder)
        return {
            "messages": Target(read_message, good.ENCODED, _changed_message, share=256),
            "payload": Target(read_payload, payloads(), share=16),
            "agent": Target(converse, (bytes(CONVERSATION_BYTES),), _any_bytes, share=4),
            "cluster.yaml": Target(self.read_cluster, good.CLUSTERS, _changed_text, share=2),
            "plan.json": Target(self.read_plan, good.PLANS, _changed_text, share=4),
            "profile.json": Target(self.read_profile, good.PROFILES, _changed_text, share=4),
            "subnet": Target(self.read_subnet, subnets, share=16),
            "network": Target(self.read_network, (good.network(),)),
            "model files": Target(model.read_by_agent, models(), changed_model, share=8),
            "external data": Target(model.read_by_launcher, models(), changed_model, share=8),
            "keys": Target(self.read_keys, good.KEYS, share=4),
            "image": image,
            "npy": array,
            "npz": archive,
            "run.json": Target(journal.read_head, journal.heads, _changed_text, share=2),
            "journal": Target(journal.read_records, journal.records, share=2),
            "index.json": Target(index.read, index.seeds, _changed_text, share=4),
            "task": Target(tasks.read_task, tasks.TASKS, _changed_task, share=8),
            "video": Target(video_files.video_reader(self._folder), video_files.videos(), share=4),
            "references": Target(
                video_files.WatchedReferences(self._folder).read,
                video_files.references(),
                video_files.changed_reference,
                share=4,
            ),
            "standard input": Target(video_files.read_pipe, video_files.pipes(), share=4),
            "certificate": Target(
                certificates.read_certificate, certificates.seeds(), certificates.damaged, share=16
            ),
            "plan certificate": Target(
                certificates.read_plan_certificate,
                certificates.plan_seeds(),
                certificates.damaged,
                share=16,
            ),
            "HTTP request": Target(served.read_http, served.HTTP, served.changed_http, share=64),
            "gRPC request": Target(served.read_grpc, served.GRPC, share=64),
        }
