"""The root error of `nodes`, and one error for each side that can break the protocol."""


class NodeError(Exception):
    """The root of all errors of this package; the message says what, where and what to do."""


class LocalProtocolError(NodeError):
    """This side tried what the protocol does not allow in its present state, which is a bug."""


class RemoteProtocolError(NodeError):
    """The peer sent what the protocol does not allow; its connection is closed."""
