"""One file per strategy: each turns a network and devices into an assignment."""
