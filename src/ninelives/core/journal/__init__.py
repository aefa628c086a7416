"""The journal: what each kind of record says, and what replay reads out of it.

- `chain`: the checksums that link records; `salvage`: the good prefix of a damaged journal
- `replay`: outcomes by step; `matching`: which record belongs to which call
- `settlement`: the fate of a non-resumable action; `approval`, `answers`: what people said
- `output`, `resources`, `chat_history`, `fork_origin`, `retry_scope`: bodies of the other records
- `recovery_log`: the chained log of deaths and takeovers
"""
