"""What holds for all tests."""

import signal

# A shell ignores SIGINT for what it starts in the background, and what is ignored stays so in all
# that is started from here; but Ctrl-C is among the things that are tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
