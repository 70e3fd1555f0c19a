"""The errors of `cnn`."""


class CnnError(Exception):
    """The root error of `cnn`; its message says what happened, where, and what to do."""


class ModelError(CnnError):
    """A model that cannot be read, or that contains something that is not supported."""
