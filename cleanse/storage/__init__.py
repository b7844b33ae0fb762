"""Places that are no disk of this machine: object stores and network file systems, named by URLs."""
