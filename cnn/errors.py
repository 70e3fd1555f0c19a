"""The errors of `cnn`."""


class CnnError(Exception):
    """The root of the errors of `cnn`: the message says what happened, where (file, layer), what to
    do.
    """


class ModelError(CnnError):
    """A model that cannot be read, or that contains something that is not supported."""
