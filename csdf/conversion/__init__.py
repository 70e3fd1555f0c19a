"""From a network and a partition to phases, flows, skews and a proof that nothing can deadlock."""
