"""The simulator: times of all instructions and messages of a step, by discrete events over a program's streams."""
