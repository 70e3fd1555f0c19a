"""Plans: from a configuration to a plan, saved plans, replanning, and the files of subnets."""
