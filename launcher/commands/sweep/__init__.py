"""`ga sweep`: tunes a genetic algorithm, reports the best parameters, and can save them."""
