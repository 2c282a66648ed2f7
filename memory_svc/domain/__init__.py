"""Pure rules: no await, no clock, no log, no file. The instant and the vectors come in as arguments."""
