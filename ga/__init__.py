"""Genetic search for partitions.

- `ga.paper` (strategy `vertical-paper`) is the genetic algorithm of Tang and Stefanov (2021), which
  minimises their Eq. 1.
- `ga.vertical` combines NSGA-II (`ga.nsga`) with simulated annealing and steepest descent
  (`ga.local_search`).
- `ga.hybrid` also splits layers. It anneals states that say how much of each unit every device has.
- `ga.replicated` divides several copies of the network over groups of devices.
- `ga.auto` tries these and the strategies of `partition`, and compares their plans (`ga.ranking`).
- `ga.sweep` tunes the parameters of the searches.

Both genetic algorithms are DEAP's, with its individuals, archives, statistics and logbooks
(`ga.individuals`). Annealing and descent do not use DEAP: each step is one array operation over all
chains. `ga.objectives` states the objectives and the one rule for memory limits.
"""
