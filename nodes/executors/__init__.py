"""The engines that run subnets: the only package that imports an engine."""
