"""What the host does beside the dies: initial weights, batches, and the judgement of two runs."""
