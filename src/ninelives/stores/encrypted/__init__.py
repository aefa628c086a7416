"""Encryption at rest, above all stores: what users' data is in is sealed before a store gets it.

`keys`: the keys of this process. `sealing`: a value in its sealed form, and back. `bodies`: which parts of
each body are sealed. `encrypted_store`: a store whose reads open and whose writes seal. `marker`: how a
store says that it is encrypted. See docs/decisions/0042.
"""
