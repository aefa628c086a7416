"""The audit log: an append-only log of what was decided, by SHA-256 in a Merkle tree, and anchored outside.

- `merkle`: the tree of RFC 6962: roots and proofs
- `tiles`: the log in documents
- `entries`: add entries, each once
- `journal_facts`, `recorded_verdicts`: what is taken over from journals
- `follower`: follow the journals
- `controls`, `pruning`: controls and removals, logged before they happen
- `anchoring`: tree heads outside the store
- `verification`: what was changed
- `proofs`: proofs for others, without the store
"""
