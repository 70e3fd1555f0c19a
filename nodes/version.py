"""The version of this package, as its metadata has it; looking that up costs an agent 5 MB."""

VERSION = "0.1.0"
