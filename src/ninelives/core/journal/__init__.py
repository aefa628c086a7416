"""The journal: the body of each kind of record, and how replay reads them.

- `chain`: the checksums that link records; `salvage`: continue from the good prefix of a damaged journal
- `replay`: outcomes by step; `matching`: which record belongs to which call
- `settlement`: the fate of a non-resumable action; `approval`, `answers`: requests to people, and their
  answers
- `output`, `resources`, `fork_origin`: bodies of other records; `retry_scope`: what a retried run does again
- `chat_history`: repair tool calls without results; `recovery_log`: the chained log of deaths and takeovers
"""
