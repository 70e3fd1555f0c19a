"""From a cluster to a plan, saved plans, and the files of subnets."""
