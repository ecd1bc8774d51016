"""The strategy search: which degrees of the axes make the shortest simulated step of a model on its wafer."""
