"""Find out whether an error is caused by an installation that is damaged or incomplete.

Another distribution may have overwritten files of ours, or a dependency may be missing. The wheel's
own list of files (RECORD) has a checksum of each. An editable installation has no such list; there,
the only check is whether Python finds another package of the same name before ours.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "csdf-edge"
PACKAGES = ("cnn", "csdf", "partition", "ga", "nodes", "launcher")
HERE = Path(__file__).parent.parent

EXTRAS = {
    "run": ("networkx", "onnx", "PIL", "pydantic", "rich", "scipy", "typer", "yaml"),
    "launch": ("deap", "optuna", "ortools"),
    "plots": ("matplotlib",),
    "serve": ("aiohttp", "google", "grpc", "prometheus_client"),
    "trace": ("opentelemetry",),
    "stream": ("av", "cv2", "paho", "urllib3"),
    "cpu": ("onnxruntime",),
    "openvino": ("openvino",),
    "lossless": ("zstandard",),
    "discover": ("ifaddr", "zeroconf"),
    "upgrade": ("asyncssh",),
}
"""The modules that each extra installs; `launch`, `serve` and others contain `run`."""


def what_is_wrong(error: Exception) -> str | None:
    """Return a sentence that says what is wrong with the installation; None if nothing is."""
    changed = next(_overwritten(), None)
    if changed is not None:
        path, owner = changed
        culprit = f"the package {owner!r}" if owner is not None else "something else"
        remedy = f"uninstall {owner}, " if owner is not None else ""
        return (
            f"{path} is no longer csdf-edge's file: {culprit} has overwritten, removed or hidden "
            f"it; {remedy}then install csdf-edge again, preferably in a separate environment"
        )
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError):
        for extra, modules in EXTRAS.items():
            if name in modules:
                return (
                    f"this needs {error.name}, which is not installed: install csdf-edge with its "
                    f"extra {extra!r} (pip install 'csdf-edge[{extra}]')"
                )
    if isinstance(error, ImportError) and any(name in modules for modules in EXTRAS.values()):
        what = " ".join(str(error).split())
        return (
            f"the package of {name} is damaged ({what}): install it again with "
            "pip install --force-reinstall"
        )
    return None


def _overwritten() -> Iterator[tuple[str, str | None]]:
    """Yield files of ours that were changed or hidden, with the distribution that has the file."""
    try:
        ours = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        ours = None
    for file in (ours.files if ours is not None else None) or ():
        name = str(file)
        if name.endswith(".py") and file.hash is not None and not name.startswith(".."):
            path = Path(str(file.locate()))
            if not path.is_file() or _digest(path, file.hash.mode) != file.hash.value:
                yield name, _owner(name, ours)
    for package in PACKAGES:
        spec = find_spec(package)
        origin = spec.origin if spec is not None else None
        expected = HERE / package / "__init__.py"
        if origin is None or Path(origin).resolve() != expected.resolve():
            yield f"{package}/__init__.py", _owner(f"{package}/__init__.py", ours)


def _digest(path: Path, mode: str) -> str:
    """Return the checksum as in RECORD: URL-safe base64 without padding."""
    digest = hashlib.new(mode, path.read_bytes()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _owner(file: str, ours: Distribution | None) -> str | None:
    """Return the name of another distribution that has files in the package of `file`."""
    package = file.partition("/")[0] + "/"
    for other in distributions():
        name: str | None = other.metadata["Name"]
        if name is None or (ours is not None and name == ours.metadata["Name"]):
            continue
        if any(str(each).startswith(package) for each in other.files or ()):
            return name
    return None
