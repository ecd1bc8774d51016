"""When everything of a step happens: discrete events over the streams of a program."""
