"""Load with retention on: the store's size is flat."""
