"""What the commands do: a module for each, or for a group of related ones."""
