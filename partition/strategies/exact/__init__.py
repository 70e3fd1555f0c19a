"""The exact strategy: a constraint program, solved by OR-Tools CP-SAT."""
