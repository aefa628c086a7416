"""Approvers: which people may answer for a role, and how it is known that they did. See docs/approvals.md.

- `people`: the file of approvers: names, roles, SSH keys, from when until when
- `ssh_signature`: the format of `ssh-keygen -Y sign`, read and verified
- `statement`: the text that a person signs, made from the item and the answer
- `approvers`: the part of the governor that refuses answers
- `signing`: signs an answer by ssh-keygen, for the command

An answer is verified by the worker that takes it, never by the command that gave it.
"""

from ninelives.governance.approvers.approvers import check as check
