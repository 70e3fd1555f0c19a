"""The cost model: times, traffic, energy and memory of an assignment, for whole populations."""
