"""How the processes of one run see each other. Numbers are gathered, and the state of a parent goes where it is needed."""
