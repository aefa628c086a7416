"""Stores: each is one implementation of `ninelives.store.Store`."""
