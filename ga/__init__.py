"""Genetic search for partitions.

- **The paper's genetic algorithm** (`ga.paper`, strategy `vertical-paper`) minimises Eq. 1 of Tang
  and Stefanov (2021). DEAP runs it.
- **NSGA-II** (`ga.nsga`) is the first step of the strategy `vertical` (`ga.vertical`). DEAP runs
  it. Simulated annealing (`ga.local_search`) and steepest descent (`ga.local_search`) then refine
  what it has found.
- **`hybrid`** (`ga.hybrid.strategy`) also splits layers. It is simulated annealing alone and no
  genetic algorithm: its states say how much of each unit every device has.
- **`auto`** (`ga.auto`) and `replicated` (`ga.replicated`) call these and the strategies of
  `partition`, and compare the plans.

**DEAP and arrays.** Individuals, selection, crossover, archives, statistics and logbooks are DEAP's
(`ga.individuals`). Populations are priced as one array, through the toolbox's `map`. Annealing and
descent are not DEAP's business and do not use it: they move thousands of states per second, each
step as one array operation over all chains.

**Memory limits** are treated in one way by all of them (`ga.objectives`).
"""
