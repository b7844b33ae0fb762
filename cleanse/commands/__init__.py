"""What each command of the command line does; ``cleanse.cli`` says how it is called."""
