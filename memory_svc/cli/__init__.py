"""The verbs of the command line, one a file: `run(arguments)` gives the exit status."""
