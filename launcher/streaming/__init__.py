"""Stream the frames of a source through a cluster, and its results to sinks."""
