"""Copies of a store in a bucket (S3 or a directory), made while it is in use, and restored from there.

- `bucket`: objects with conditional writes; `s3_bucket`, `directory_bucket`: the two kinds; `opening`
- `segment`: one object of the chain, encoded; `chain`: the segments of a bucket, verified
- `term`: which process may write; `copied`: what is in the bucket; `replicator`: copies what has changed
- `progress`: what the replicator reports
- `folding`: segments back to runs; `restoring`: runs into a store, or only compared with one
"""
