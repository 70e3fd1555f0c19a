"""The root error of `nodes` and the two ways in which a protocol can be broken."""


class NodeError(Exception):
    """Anything that goes wrong on a node; the message says what, where and what to do."""


class LocalProtocolError(NodeError):
    """We tried to do what the protocol does not allow now: a bug of ours."""


class RemoteProtocolError(NodeError):
    """The peer sent what the protocol does not allow; it is cut off."""
